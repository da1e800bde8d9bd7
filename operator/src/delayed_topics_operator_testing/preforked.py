"""Operators as processes, forked from one that has imported everything, because the imports take longer than most tests.

As a program, this module reads the operators to start as lines of JSON, and answers each with a process id.
"""

import functools
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from delayed_topics_devcluster.processes import Process


def start_operator(arguments: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Process:
    """Starts the operator in a session of its own, and appends its output to `log`."""
    parent = _parent(frozenset(environment.items()))
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(json.dumps({"arguments": list(arguments), "log": str(log)}) + "\n")
    parent.stdin.flush()
    return Process.of(int(parent.stdout.readline()))


@functools.cache
def _parent(environment: frozenset[tuple[str, str]]) -> subprocess.Popen[str]:
    """Returns the process that operators are forked from. It ends with this process, and its operators do not. There is one for each
    environment, because some modules read the environment when they are imported."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **dict(environment)},
        text=True,
        start_new_session=True,
    )


def _serve() -> None:
    import delayed_topics_operator.cli  # noqa: F401  not in the tests' own process

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _run(**asked)
        print(pid, flush=True)


def _run(arguments: list[str], log: str) -> None:
    """Runs the operator in this process."""
    from delayed_topics_operator.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir("/")
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(output, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 1
    try:
        main(arguments, standalone_mode=False)
        code = 0
    except BaseException:
        logging.exception("the operator ended")
    finally:
        logging.shutdown()
        os._exit(code)


if __name__ == "__main__":
    _serve()
