"""Where the code says a reason, and does not only look for it."""

import ast
from pathlib import Path

_ONLY_NAMED = (ast.Compare, ast.Set, ast.List, ast.Tuple, ast.Subscript, ast.MatchValue)
"""A reason that is compared, or listed among others, is raised by nobody there: `reason in {Reason.PAUSED}`."""


def raised(source: str, kind: str) -> set[str]:
    """The members of the enumeration `kind` that this source says: as an argument, as a value, or as what is returned."""
    tree = ast.parse(source)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == kind
        if not _is_only_named(node, parents)
    }


def raised_in(paths: list[Path], kind: str) -> set[str]:
    return {name for path in paths for name in raised(path.read_text(), kind)}


def _is_only_named(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Decided by what it is a part of, up to the call that it is an argument of, or the end of its statement."""
    up = parents.get(node)
    while up is not None and not isinstance(up, (ast.Call, ast.stmt)):
        if isinstance(up, _ONLY_NAMED):
            return True
        up = parents.get(up)
    return False
