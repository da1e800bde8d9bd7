"""Finds the reasons that the code raises, and does not only compare with."""

import ast
from pathlib import Path

_MENTIONS = (ast.Compare, ast.Set, ast.List, ast.Tuple, ast.Subscript, ast.MatchValue)
"""In these expressions, a reason is compared or listed, and not raised: `reason in {Reason.PAUSED}`."""


def raised(source: str, kind: str) -> set[str]:
    """Returns the members of the enumeration `kind` that this source raises: as an argument, a value or a return value."""
    tree = ast.parse(source)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == kind
        if not _is_mention(node, parents)
    }


def raised_in(paths: list[Path], kind: str) -> set[str]:
    return {name for path in paths for name in raised(path.read_text(), kind)}


def _is_mention(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether an expression around the node, up to the next call or to the statement, is one of `_MENTIONS`."""
    up = parents.get(node)
    while up is not None and not isinstance(up, (ast.Call, ast.stmt)):
        if isinstance(up, _MENTIONS):
            return True
        up = parents.get(up)
    return False
