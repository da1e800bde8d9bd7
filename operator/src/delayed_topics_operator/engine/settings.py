"""All settings of the operator, with unit and reason."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from delayed_topics_crds.pods import LabelSelector

from delayed_topics_operator.values.pod_spec import PodDefaults


@dataclass(frozen=True, kw_only=True)
class Settings:
    """
    namespace               where the operator runs: Secrets and workers of cluster connections live here
    audit_namespace         where audits of cluster connections run; nothing else is there
    tenant_namespaces       namespaces that admit the operator for their own KafkaConnections
    tenant_selector         selects further such namespaces by their labels; None: there are none
    worker_image            image of the worker pods
    audit_image             image of the audit Jobs
    image_pull_policy       pull policy of both images
    audit_executors         whether audits may have executors: their Jobs may then create pods in their namespaces
    audit_spark_applications  whether audits may be SparkApplications, which the Spark Operator runs
    pod_labels              further labels of the pods of workers and audits, for injectors, policies and scrapers of this cluster
    pod_annotations         further annotations of these pods
    pod_defaults            where these pods run, unless a resource says otherwise
    audit_fs_group          group that may write to the claim on which the account of an audit is kept; None: the cluster chooses it
    http_port               port of /livez, /readyz and /metrics
    resync_seconds          how often everything is compared; half of the time that drift may last (60 s)
    gone_after_seconds      how long a deletion waits for Kafka or its credentials before it leaves the topics as they are
    orphans_after_seconds   how long objects of a resource may exist after the resource is gone; then they are removed
    kafka_timeout_seconds   timeout of one call to Kafka; all items of a batch share it
    registry_mebibytes      limit for the keys and values of a connection's registry; in memory they take about four times as much
    kafka_threads           blocking Kafka calls at the same time, for each connection
    passes_at_once          passes over DelayedTopics at the same time, for each connection
    rolling_at_once         resources whose workers are rolled at the same time, so that a change of image does not move everything
    identity                name of this process among those that may be the operator: the name of the pod, so that a container that
                            restarts in its pod goes on at once
    lease_seconds           how long another operator waits after the last renewal of the lease
    pass_interval_seconds   least time between passes that events cause, so that a fight over an object is at most one write a second
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
    pod_defaults: PodDefaults = field(default_factory=PodDefaults)
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
        """Returns the namespace of the workers of a resource in `namespace`."""
        return self.namespace if connection_kind == "ClusterKafkaConnection" else namespace
