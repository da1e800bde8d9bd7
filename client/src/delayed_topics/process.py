"""Remembers in which process a Kafka client was made. A process that is forked from it has the client without its threads, so calls would
do nothing or never return."""

import os

from delayed_topics.errors import ClientForked


class ProcessOf:
    """The process that made a client. `client` names the client in the message of the error."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises ClientForked in any other process."""
        if not self.is_here:
            raise ClientForked(
                f"{self._client} was made in process {self._pid}, and can't be used in process {os.getpid()}, which was forked from it. "
                "Call DelayedTopic.connect in each process, after the fork"
            )
