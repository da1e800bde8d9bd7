"""Reads the headers of a message without a crash of the process."""

from collections.abc import Sequence
from operator import methodcaller
from typing import Final

from confluent_kafka import Message
from delayed_topics_core.headers import Header

# If a header's name is not UTF-8, the client library both returns a list that contains a NULL and sets an exception. A call through
# C, as with this methodcaller, then raises SystemError. A plain `message.headers()` does so only at first: once CPython 3.11 or newer
# has specialized the hot call, it returns the list. The next poll() then raises the exception and loses its records, and the NULL
# crashes the process.
_headers: Final = methodcaller("headers")


def headers_of(message: Message) -> Sequence[Header] | None:
    """Returns the headers of a message, None if the name of one is not UTF-8. Call this once per message, because a second call gets the
    broken list."""
    try:
        headers: Sequence[Header] | None = _headers(message)
    except (SystemError, UnicodeDecodeError):
        return None
    return headers if headers is not None else ()
