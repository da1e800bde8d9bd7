"""What the pods of a StatefulSet of workers mount."""

import json
from typing import Any

from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.workers.reconcile.manifests import WORKER_CONFIG


def worker_config(stateful_set: Manifest) -> dict[str, Any]:
    """Returns worker.json of its next pods."""
    found: dict[str, Any] = json.loads(stateful_set["spec"]["template"]["metadata"]["annotations"][WORKER_CONFIG])
    return found
