"""The resources of delayed topics as models, and the files generated from these models: the CRDs and the reference page.

How the operator acts on a resource does not belong here, so this package imports no other member.
"""

from delayed_topics_crds.audit import Account, DelayedTopicAudit, DelayedTopicAuditSpec, DelayedTopicAuditStatus
from delayed_topics_crds.base import Resource
from delayed_topics_crds.common import Condition
from delayed_topics_crds.connection import (
    AuditGrant,
    ClusterKafkaConnection,
    ClusterKafkaConnectionSpec,
    ClusterKafkaConnectionStatus,
    Grant,
    KafkaConnection,
    KafkaConnectionSpec,
    KafkaConnectionStatus,
    TemplateGrant,
)
from delayed_topics_crds.delayed_topic import DelayedTopic, DelayedTopicSpec
from delayed_topics_crds.delayed_topic_status import (
    MAX_MEMBERS,
    MAX_RECENT,
    DelayedTopicStatus,
    GroupMember,
    LadderStatus,
    LastAudit,
    LastViolation,
    LayoutRange,
    LayoutStatus,
    RebalanceRecord,
    RebalanceStatus,
    RefusedProtocol,
    TopicStatus,
    WorkersScaled,
    WorkersStatus,
)
from delayed_topics_crds.kinds import API_VERSION, GROUP, KINDS, VERSION, parse, to_dict
from delayed_topics_crds.quota import MAX_NAMESPACES, NamespaceQuota, Quota, QuotaHard, QuotaUsed

__all__ = [
    "API_VERSION",
    "GROUP",
    "KINDS",
    "MAX_MEMBERS",
    "MAX_NAMESPACES",
    "MAX_RECENT",
    "VERSION",
    "Account",
    "AuditGrant",
    "ClusterKafkaConnection",
    "ClusterKafkaConnectionSpec",
    "ClusterKafkaConnectionStatus",
    "Condition",
    "DelayedTopic",
    "DelayedTopicAudit",
    "DelayedTopicAuditSpec",
    "DelayedTopicAuditStatus",
    "DelayedTopicSpec",
    "DelayedTopicStatus",
    "Grant",
    "GroupMember",
    "KafkaConnection",
    "KafkaConnectionSpec",
    "KafkaConnectionStatus",
    "LadderStatus",
    "LastAudit",
    "LastViolation",
    "LayoutRange",
    "LayoutStatus",
    "NamespaceQuota",
    "Quota",
    "QuotaHard",
    "QuotaUsed",
    "RebalanceRecord",
    "RebalanceStatus",
    "RefusedProtocol",
    "Resource",
    "TemplateGrant",
    "TopicStatus",
    "WorkersScaled",
    "WorkersStatus",
    "parse",
    "to_dict",
]
