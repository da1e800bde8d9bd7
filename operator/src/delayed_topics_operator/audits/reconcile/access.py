"""Checks whether an audit may run as its spec asks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from delayed_topics_crds import AuditGrant, DelayedTopicAuditSpec, Grant
from delayed_topics_crds.schedule import Spark, mebibytes

from delayed_topics_operator.audits.reconcile import spark_application
from delayed_topics_operator.connection.reconcile.grants import covers, hard
from delayed_topics_operator.connection.reconcile.pod_template import nodes_not_granted
from delayed_topics_operator.values.key import Key


@dataclass(frozen=True, kw_only=True)
class AuditSite:
    """Where an audit of `topic` would run. `home`: the namespace of its Job. `executors`, `spark_applications`: whether this
    installation allows them.

    `grants`: of the connection; None: the connection belongs to the namespace itself, or its grants are not known yet.
    """

    namespace: str
    namespace_labels: Mapping[str, str]
    home: str
    executors: bool
    spark_applications: bool
    topic: str
    connection: Key
    grants: tuple[Grant, ...] | None


def refused(asked: DelayedTopicAuditSpec, site: AuditSite) -> str | None:
    """Returns why such an audit must not run there. None: it may run."""
    if asked.output is not None and site.home != site.namespace:
        # The claims and Secrets there do not belong to the tenant, and a Job of the operator could write to any of them.
        return (
            f"spec.output must come with a KafkaConnection of namespace {site.namespace}. With a cluster connection, the Job runs in "
            f"namespace {site.home}. Create a new DelayedTopicAudit without spec.output"
        )
    if asked.spark.executors and not site.executors:
        return (
            "spec.spark.executors is set, but executors are not enabled for this operator (chart value audits.executors.enabled). "
            "Create a new DelayedTopicAudit without spec.spark.executors"
        )
    if (disabled := mode_disabled(asked.spark, spark_applications=site.spark_applications)) is not None:
        return disabled
    if site.grants is None:
        return None
    most = hard(site.grants, site.namespace_labels).executors
    if most is not None and asked.spark.executors > most:
        return (
            f"{site.connection} allows namespace {site.namespace} at most {most} executors in total (spec.allow[].quota.executors), but "
            f"this audit alone asks for {asked.spark.executors}. Either ask for fewer in a new DelayedTopicAudit, or ask the connection's "
            "owner for more"
        )
    return _not_granted(asked, site)


def mode_disabled(spark: Spark, *, spark_applications: bool) -> str | None:
    """Returns why this installation neither creates nor looks up the object that would run the audit. None: it does both.
    `spark_applications`: whether it allows SparkApplications."""
    if spark.mode != spark_application.KIND or spark_applications:
        return None
    return (
        "spec.spark.mode is SparkApplication, which is not enabled for this operator (chart value audits.sparkApplications.enabled). "
        "Create a new DelayedTopicAudit with spec.spark.mode Job"
    )


def no_room(asked: DelayedTopicAuditSpec, site: AuditSite, others: int) -> str | None:
    """Returns why the audit has to wait for other audits of its namespace. None: it does not. `others`: the executors that those have."""
    most = hard(site.grants or (), site.namespace_labels).executors
    if not asked.spark.executors or most is None or others + asked.spark.executors <= most:
        return None
    return (
        f"{site.connection} allows namespace {site.namespace} at most {most} executors in total (spec.allow[].quota.executors), and "
        f"other audits have {others} of them. This audit waits until {asked.spark.executors} are free"
    )


def most_local_disk_mebibytes(site: AuditSite, asked: DelayedTopicAuditSpec) -> int | None:
    """Returns the limit for each pod. None: there is no limit, or the audit is refused."""
    return max((_mebibytes(granted.max_local_disk) for granted in _granting(site, asked)), default=None)


def most_ttl_seconds(site: AuditSite, asked: DelayedTopicAuditSpec) -> int | None:
    """Returns for how long the audit's Job may be kept at most. None: there is no limit, or the audit is refused."""
    return max((granted.max_ttl_seconds for granted in _granting(site, asked)), default=None)


def _granting(site: AuditSite, asked: DelayedTopicAuditSpec) -> list[AuditGrant]:
    return [granted for granted in _granted(site) if not any(_beyond(asked, granted))]


def _granted(site: AuditSite) -> list[AuditGrant]:
    return [grant.audits for grant in site.grants or () if covers(grant, site.topic, site.namespace_labels)]


def _mebibytes(size: str) -> int:
    """Parses a size in the form that DiskSize allows."""
    return int(size[:-2]) * {"Mi": 1, "Gi": 2**10, "Ti": 2**20}[size[-2:]]


def _not_granted(asked: DelayedTopicAuditSpec, site: AuditSite) -> str | None:
    where = f"{site.connection.kind} {site.connection.name}"
    lacking = [list(_beyond(asked, granted)) for granted in _granted(site)]
    if not lacking:
        return f"{where} has no grant for this namespace and topic {site.topic}. Ask its owner to add an entry to spec.allow"
    least = min(lacking, key=len)
    if not least:
        return None
    return (
        f"{where} does not allow this namespace to use {', '.join(least)}. Either ask for less in a new DelayedTopicAudit, or ask the "
        "connection's owner for an entry of spec.allow[].audits"
    )


def _beyond(asked: DelayedTopicAuditSpec, granted: AuditGrant) -> Iterator[str]:
    spark = asked.spark
    if spark.executors > granted.max_executors:
        yield f"spec.spark.executors ({spark.executors}, at most {granted.max_executors})"
    if spark.cores > granted.max_cores:
        yield f"spec.spark.cores ({spark.cores}, at most {granted.max_cores})"
    if mebibytes(spark.memory) > mebibytes(granted.max_memory):
        yield f"spec.spark.memory ({spark.memory}, at most {granted.max_memory})"
    disk = spark.local_disk
    if disk is not None and _mebibytes(disk.size) > _mebibytes(granted.max_local_disk):
        yield f"spec.spark.localDisk.size ({disk.size}, at most {granted.max_local_disk})"
    if disk is not None and disk.storage_class_name not in (None, *granted.storage_classes):
        yield f"spec.spark.localDisk.storageClassName ({disk.storage_class_name})"
    yield from (f"spec.spark.{field}" for field in nodes_not_granted(spark, granted))
