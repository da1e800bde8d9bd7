"""Everything that can be set about the operator, with unit and reason."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from delayed_topics_crds.pods import LabelSelector


@dataclass(frozen=True, kw_only=True)
class Settings:
    """
    namespace               where the operator runs: Secrets and workers of cluster connections live here
    audit_namespace         where audits of cluster connections run; nothing else is there
    tenant_namespaces       namespaces that let the operator in for their own KafkaConnection
    tenant_selector         by which labels further ones are known; None: none are
    worker_image            image of the worker pods
    audit_image             image of the audit Jobs
    image_pull_policy       of both
    audit_executors         whether audits may have executors: their Job may then make pods in its namespace
    audit_spark_applications  whether audits may be SparkApplications, which the Spark Operator runs
    pod_labels              further labels of their pods, for what acts on pods in this cluster: injectors, policies, scrapers
    pod_annotations         further annotations of them
    audit_fs_group          group that may write to the claim that an audit is kept on; None: the cluster chooses it
    http_port               /livez, /readyz and /metrics
    resync_seconds          how often everything is compared; half of what drift may last (60 s)
    gone_after_seconds      for how long a deletion waits for Kafka or its credentials before it leaves the topics as they are
    orphans_after_seconds   for how long what was made for a resource may be there without it; then it is removed
    kafka_timeout_seconds   for one call to Kafka; all of a batch share it
    registry_mebibytes      the most keys and values of a connection's registry that are held; in memory they take about four times that
    kafka_threads           blocking Kafka calls at once, for each connection
    passes_at_once          resources that are looked at at once, for each connection
    rolling_at_once         resources whose workers are rolled at once, so that a change of image doesn't move everything
    identity                of this process among those that may be the operator: the pod's name, so that a container that is started
                            again in its pod goes on at once
    lease_seconds           how long another one waits after the last sign of life
    pass_interval_seconds   passes caused by events are at least this far apart, so that a fight is at most one write a second
    """

    namespace: str
    audit_namespace: str
    worker_image: str
    audit_image: str
    tenant_namespaces: tuple[str, ...] = ()
    tenant_selector: LabelSelector | None = None
    image_pull_policy: str = "IfNotPresent"
    audit_executors: bool = False
    audit_spark_applications: bool = False
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    audit_fs_group: int | None = None
    http_port: int = 8080
    resync_seconds: float = 30.0
    gone_after_seconds: float = 300.0
    orphans_after_seconds: float = 600.0
    kafka_timeout_seconds: float = 15.0
    registry_mebibytes: int = 8
    kafka_threads: int = 4
    passes_at_once: int = 32
    rolling_at_once: int = 5
    identity: str = field(default_factory=socket.gethostname)
    lease_seconds: int = 15
    pass_interval_seconds: float = 1.0

    def home(self, connection_kind: str, namespace: str) -> str:
        """The namespace of the workers of a resource in `namespace`."""
        return self.namespace if connection_kind == "ClusterKafkaConnection" else namespace
