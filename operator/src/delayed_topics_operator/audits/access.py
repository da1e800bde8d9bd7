"""May this audit run as it is asked for?"""

from collections.abc import Iterator, Mapping

from delayed_topics_crds import AuditGrant, Grant
from delayed_topics_crds.schedule import Spark

from delayed_topics_operator.audits.manifests import mebibytes
from delayed_topics_operator.reconcile.access import covers


def refused(
    spark: Spark, *, topic: str, where: str, grants: tuple[Grant, ...] | None, namespace_labels: Mapping[str, str]
) -> str | None:
    """Why the connection's owner does not allow it. `where`: the connection. `grants` None: it is the own namespace's."""
    if grants is None:
        return None
    lacking = [list(_beyond(spark, grant.audits)) for grant in grants if covers(grant, topic, namespace_labels)]
    if not lacking:
        return f"{where} does not allow this namespace topic {topic}: ask its owner for an entry of spec.allow"
    least = min(lacking, key=len)
    if not least:
        return None
    return (
        f"{where} does not allow this namespace {', '.join(least)}: ask for less in a new DelayedTopicAudit, or ask the "
        "connection's owner for an entry of spec.allow[].audits"
    )


def _beyond(spark: Spark, granted: AuditGrant) -> Iterator[str]:
    if spark.executors > granted.max_executors:
        yield f"spec.spark.executors ({spark.executors}, at most {granted.max_executors})"
    if spark.cores > granted.max_cores:
        yield f"spec.spark.cores ({spark.cores}, at most {granted.max_cores})"
    if mebibytes(spark.memory) > mebibytes(granted.max_memory):
        yield f"spec.spark.memory ({spark.memory}, at most {granted.max_memory})"
