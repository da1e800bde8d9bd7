"""The labels of objects that the operator makes for a resource."""

import hashlib

APP = "delayed-topics-worker"
MANAGED_BY = "delayed-topics-operator"
NAMESPACE_LABEL = "delayedtopics.io/namespace"
NAME_LABEL = "delayedtopics.io/name"
"""With NAMESPACE_LABEL, the resource that the object belongs to. A name that is too long for a label is shortened."""
CONNECTION_KIND_LABEL = "delayedtopics.io/connection-kind"
CONNECTION_LABEL = "delayedtopics.io/connection"
"""With CONNECTION_KIND_LABEL, the connection whose DelayedTopics share these workers."""
OF_WORKERS = {"app.kubernetes.io/name": APP, "app.kubernetes.io/managed-by": MANAGED_BY}
SELECTOR_LABELS = ",".join(f"{label}={value}" for label, value in OF_WORKERS.items())


def label_value(name: str) -> str:
    """A label's value has at most 63 characters; a resource's name may have more."""
    return name if len(name) <= 63 else f"{name[:54].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
