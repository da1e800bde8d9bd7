"""The error of an audit that reaches no verdict. `Unknown` is a verdict, not an error."""

from delayed_topics_core.errors import DelayedTopicsError


class AuditFailed(DelayedTopicsError):
    """The audit reached no verdict. The same audit may succeed later. The message is one line: what is wrong, where, and what to do."""
