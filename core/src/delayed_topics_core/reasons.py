"""Every condition type, condition reason and dead-letter reason, declared once. docs/reasons.md explains each of them."""

from enum import StrEnum
from typing import Final

EXIT_PROTOCOL_REFUSED: Final = 3
"""The exit code of a worker if Kafka does not support the rebalance protocol or the assignor that the worker is configured to use."""


class DeadLetterReason(StrEnum):
    """Values of `dt-reason`, which says why a record is in the dead-letter topic."""

    RETRY_CAP_EXCEEDED = "RetryCapExceeded"
    REJECTED = "Rejected"
    HEADER_TWICE = "HeaderTwice"
    HEADER_UNREADABLE = "HeaderUnreadable"
    NO_LADDER = "NoLadder"
    MAX_DELAY_EXCEEDED = "MaxDelayExceeded"
    TARGET_NOT_ALLOWED = "TargetNotAllowed"
    TARGET_UNAVAILABLE = "TargetUnavailable"
    TOO_LARGE = "TooLarge"
    CANCELLED = "Cancelled"
    INVALID_RECORD = "InvalidRecord"


WORKER_REASONS: Final = tuple(reason for reason in DeadLetterReason if reason is not DeadLetterReason.REJECTED)
"""The reasons for which workers make dead letters. Only clients reject records."""


class Condition(StrEnum):
    """Types of `status.conditions`."""

    READY = "Ready"
    CLAIMED = "Claimed"
    TOPICS_READY = "TopicsReady"
    WORKERS_READY = "WorkersReady"
    DURABILITY_REDUCED = "DurabilityReduced"
    LAYOUT_CLAMPED = "LayoutClamped"
    ALARM = "Alarm"
    PLANNED = "Planned"
    SERVED_ELSEWHERE = "ServedElsewhere"
    DELIVERY_VERIFIED = "DeliveryVerified"
    # conditions of a DelayedTopicAudit
    COMPLETE = "Complete"
    VERIFIED = "Verified"
    STALLED = "Stalled"


class Reason(StrEnum):
    """Reasons of conditions. Each has one meaning, and is never reused for another."""

    # Ready, and every condition that holds as it should
    AS_DECLARED = "AsDeclared"
    IN_PROGRESS = "InProgress"
    SPEC_INVALID = "SpecInvalid"
    PAUSED = "Paused"
    DELETING = "Deleting"
    PLAN_ONLY = "PlanOnly"
    # connection
    CONNECTION_MISSING = "ConnectionMissing"
    CREDENTIALS_MISSING = "CredentialsMissing"
    KAFKA_UNREACHABLE = "KafkaUnreachable"
    TOKEN_MISSING = "TokenMissing"
    KAFKA_REFUSED = "KafkaRefused"
    NOT_ALLOWED = "NotAllowed"
    GRANT_EXCEEDED = "GrantExceeded"
    CLUSTER_CHANGED = "ClusterChanged"
    REGISTRY_LOST = "RegistryLost"
    OTHER_INSTALLATION = "OtherInstallation"
    REGISTRY_TOO_LARGE = "RegistryTooLarge"
    # ownership
    CLAIM_HELD = "ClaimHeld"
    CLAIMED_BY_OTHER = "ClaimedByOther"
    TOPIC_FOREIGN = "TopicForeign"
    # topics and layout
    TOPICS_CREATING = "TopicsCreating"
    TOPIC_RECREATED = "TopicRecreated"
    TOPIC_MISSING = "TopicMissing"
    PARTITIONS_FOREIGN = "PartitionsForeign"
    LAYOUT_CLAMPED = "LayoutClamped"
    COUNTS_ABOVE_SPEC = "CountsAboveSpec"
    ONE_REPLICA = "OneReplica"
    ONE_IN_SYNC_REPLICA = "OneInSyncReplica"
    REPLICATION_DIFFERS = "ReplicationDiffers"
    SETTING_REFUSED = "SettingRefused"
    # workers
    WORKERS_STARTING = "WorkersStarting"
    WORKERS_FAILING = "WorkersFailing"
    ROLLOUT_WAITING = "RolloutWaiting"
    SCALED_TO_ZERO = "ScaledToZero"
    PROTOCOL_REFUSED = "ProtocolRefused"
    NOT_RELEASING = "NotReleasing"
    REBALANCE_SLOW = "RebalanceSlow"
    COMMIT_MISSING = "CommitMissing"
    RECORDS_REMOVED = "RecordsRemoved"
    TARGET_UNAVAILABLE = "TargetUnavailable"
    MISROUTED_RECORDS = "MisroutedRecords"
    RETENTION_AT_RISK = "RetentionAtRisk"
    CONTROL_UNREADABLE = "ControlUnreadable"
    TOO_MANY_CONTROL_REQUESTS = "TooManyControlRequests"
    NONE_RAISED = "NoneRaised"
    # audit
    EVERY_RECORD_ACCOUNTED = "EveryRecordAccounted"
    PROMISE_BROKEN = "PromiseBroken"
    VIOLATION_ACKNOWLEDGED = "ViolationAcknowledged"
    CANNOT_SEE_EVERYTHING = "CannotSeeEverything"
    AUDIT_WAITING = "AuditWaiting"
    AUDIT_RUNNING = "AuditRunning"
    AUDIT_FAILED = "AuditFailed"
    # the API server
    KUBERNETES_REFUSED = "KubernetesRefused"
    QUOTA_EXCEEDED = "QuotaExceeded"
