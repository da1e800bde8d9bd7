"""The disk to which the Java virtual machines of an audit write when their memory is not enough. Pure."""

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from delayed_topics_core.audit_window import AuditWindow

from delayed_topics_operator.audits.reconcile.observation import AuditObservation
from delayed_topics_operator.values.manifest import Manifest

BYTES_PER_OFFSET: Final = 80
"""Bytes that are shuffled and cached if nothing stays in memory. A record with its hops and outcomes has two and a half offsets, and takes
181 bytes (docs/audit-sizing.md)."""
BYTES_PER_CARRIED_OFFSET: Final = 180
"""Bytes in each table that a link of a chain has on the disk until it ends, the one that it makes and the one that it has opened: 21
columns of eight bytes, not compressed."""
MIN_MEBIBYTES: Final = 1024
RESOURCE: Final = "ephemeral-storage"


@dataclass(frozen=True, kw_only=True)
class LocalDisk:
    """`volume`: of the pod, without its name. `requests`, `limits`: of the container. `security`: of the pod."""

    volume: Manifest
    requests: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    security: Manifest = field(default_factory=dict)


def local_disk(o: AuditObservation, window: AuditWindow | None) -> LocalDisk:
    """Returns the disk of each pod that processes records. Unless the spec has a size, it is what the window needs, as far as the
    connection grants that."""
    asked, most = o.audit.spec.spark.local_disk, o.job_settings.most_local_disk_mebibytes
    if asked is None:
        spark = o.audit.spec.spark
        least = spark.executors if spark.min_executors is None else spark.min_executors
        copies = min(2, max(1, spark.executors))  # of what Spark can't compute again
        tables = copies if o.audit.spec.output is not None else 0
        needed = _needed_mebibytes(window, pods=max(1, least), of_each_table=tables)
        return _of_the_node(request=f"{min(needed, most or needed)}Mi", limit=f"{most}Mi" if most else None)
    if asked.storage_class_name is None:
        return _of_the_node(request=asked.size, limit=asked.size)
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": asked.storage_class_name,
        "resources": {"requests": {"storage": asked.size}},
    }
    group = o.job_settings.fs_group
    return LocalDisk(
        volume={"ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
        security={"fsGroup": group} if group is not None else {},
    )


def _needed_mebibytes(window: AuditWindow | None, *, pods: int, of_each_table: int) -> int:
    """`of_each_table`: the number of copies of each table that a link of a chain carries."""
    if window is None:
        return MIN_MEBIBYTES
    tables = of_each_table * (window.carries + (window.carried is not None))
    each = (BYTES_PER_OFFSET + tables * BYTES_PER_CARRIED_OFFSET) / window.sample_one_in
    return max(MIN_MEBIBYTES, ceil(window.offsets * each / pods / 2**20))


def _of_the_node(*, request: str, limit: str | None) -> LocalDisk:
    return LocalDisk(
        volume={"emptyDir": {"sizeLimit": limit} if limit else {}},
        requests={RESOURCE: request},
        limits={RESOURCE: limit} if limit else {},
    )
