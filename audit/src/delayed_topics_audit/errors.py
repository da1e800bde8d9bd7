"""What keeps an audit from reaching a verdict. A verdict of `Unknown` is one too, and no error."""

from delayed_topics_core.errors import DelayedTopicsError


class AuditFailed(DelayedTopicsError):
    """No verdict was reached; the same audit may succeed later. The message is one line: what is wrong, where, what to do."""
