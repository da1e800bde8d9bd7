"""The process that a Kafka client was made in. One that is forked from it gets the client without its threads, so that calls would do
nothing, or wait for ever."""

import os

from delayed_topics.errors import ClientForked


class ProcessOf:
    """`client`: what was made, for the message of the error."""

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
