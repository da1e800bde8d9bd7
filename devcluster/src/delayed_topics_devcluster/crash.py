"""Kills everything at once, as a power cut, an out-of-memory killer or an impatient person would."""

import random
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

from delayed_topics_devcluster.namespace import Namespace
from delayed_topics_devcluster.orphans import PREFIX
from delayed_topics_devcluster.paths import is_built_program
from delayed_topics_devcluster.processes import Process, command_lines
from delayed_topics_devcluster.waiting import wait_until

__all__ = ["crash"]


def crash() -> None:
    """Sends SIGKILL to every process of the platform, whoever started it, in random order: the cluster with its containers, and the
    brokers and API servers of tests. Cleans nothing up: the next command has to cope with what is left.
    """
    wait_until(_found_nothing_to_kill, what="every process of the platform is dead")


def _found_nothing_to_kill() -> bool:
    inside = (process for namespace in Namespace.running() for process in namespace.processes())
    found = [*_outside(), *Namespace.inits(), *inside]
    random.shuffle(found)
    for process in found:
        process.signal(SIGKILL)
    return not found


def _outside() -> list[Process]:
    found = []
    for pid, words in command_lines():
        if Path(words[-1]).match(f"{PREFIX}*/server.properties") or is_built_program(words[0]):
            with suppress(ProcessLookupError):
                found.append(Process.of(pid))
    return found
