"""Runs the command `delayed-topics`, also as `python -m delayed_topics`. The command needs the extra `cli` of the client."""

import sys
from typing import Final

_OF_EXTRA: Final = ("click", "rich")


def main() -> None:
    """Exits with code 1 and a one-line message if the client is installed without the extra."""
    try:
        from delayed_topics.cli import main as command
    except ModuleNotFoundError as e:
        if e.name not in _OF_EXTRA:
            raise
        sys.exit(
            f"Error: the command delayed-topics needs {' and '.join(_OF_EXTRA)}, which come with the extra cli of the client. "
            "Install them from a checkout of the project with pip install ./core ./kafka './client[cli]'"
        )
    command(prog_name="delayed-topics")


if __name__ == "__main__":
    main()
