"""Reading a message's headers without dying of them."""

from collections.abc import Sequence
from operator import methodcaller
from typing import Final

from confluent_kafka import Message
from delayed_topics_core.headers import Header

# For a header name that is not UTF-8 the client library returns a list with a NULL in it *and* an exception. Whoever calls
# through C (as here) gets a SystemError. A plain `message.headers()` gets it a few times, too, and then, once CPython 3.11 or
# newer has specialized the hot call, gets the list: the exception surfaces in the next poll(), which loses its records, and
# the NULL crashes the process.
_headers: Final = methodcaller("headers")


def headers_of(message: Message) -> Sequence[Header] | None:
    """None: a header's name is not UTF-8. To be called once per message: a second call is given the broken list."""
    try:
        headers: Sequence[Header] | None = _headers(message)
    except (SystemError, UnicodeDecodeError):
        return None
    return headers if headers is not None else ()
