"""From the models of the resources to the terms of core. Nothing beyond knows what a manifest looks like."""

from collections.abc import Mapping
from typing import Any, TypeVar

from delayed_topics_core.errors import IllegalTopicName
from delayed_topics_core.layout import LayoutSpec, ladder
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import Owner
from delayed_topics_crds import DelayedTopic
from delayed_topics_crds.common import StatusBase
from delayed_topics_crds.delayed_topic import ASSIGNORS, PRESETS, DelayedTopicSpec, Workers, WorkerTemplate
from pydantic import ValidationError

from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator.observation import Subject, Wanted
from delayed_topics_operator.queue import Key

FINALIZER = "delayedtopics.io/finalizer"
PLAN_ONLY = "delayedtopics.io/plan-only"
ACKNOWLEDGED_AUDIT = "delayedtopics.io/acknowledged-audit"
ACCEPT_LOSS = "delayedtopics.io/accept-loss-of-topic-id"
"""Annotation: ids, separated by commas, of front or delays topics that are gone and shall be begun anew; of a connection: of its
registry, in whose place the one that is there is to be used, or a new one made."""

TAKE_OVER = "delayedtopics.io/take-over-from"
"""Annotation: whose topics are to be taken over, as the condition Claimed says it."""


def accepted_losses(annotations: Mapping[str, str] | None) -> frozenset[str]:
    """Ids of topics that were given up by annotation."""
    listed = (annotations or {}).get(ACCEPT_LOSS, "")
    return frozenset(part.strip() for part in listed.split(",") if part.strip())


S = TypeVar("S", bound=StatusBase)


def status_of(model: type[S], raw: Mapping[str, Any]) -> S:
    """As it was last written; an empty one if a version wrote it that this one can't read."""
    try:
        return model.model_validate(raw.get("status") or {}, by_alias=True, by_name=False)
    except ValidationError:
        return model()


def connection_key(resource: DelayedTopic) -> Key:
    """The connection that a resource names."""
    ref = resource.spec.connection_ref
    namespace = resource.metadata.namespace or "" if ref.kind == "KafkaConnection" else ""
    return Key(ref.kind, namespace, ref.name)


def wanted(resource: DelayedTopic) -> Wanted:
    """Raises SpecInvalid: the API server checks all of this, unless a CRD of another version is installed."""
    spec = resource.spec
    try:
        names = TopicNames.of(spec.topic or resource.metadata.name)
    except IllegalTopicName as e:
        raise SpecInvalid(f"spec.topic: {e}") from e
    workers = spec.workers or Workers()
    layout = LayoutSpec(
        delay_seconds=_delay_list(spec),
        partitions=spec.partitions,
        lanes_per_delay=spec.lanes_per_delay,
        ladder_seconds=ladder(max_seconds=spec.ladder.max_seconds, base=spec.ladder.base) if spec.ladder else (),
    )
    return Wanted(
        spec=spec,
        names=names,
        layout=layout,
        targets=tuple(sorted(set(spec.ready.allowed_topics))),
        front_partitions=spec.front_partitions or layout.front_partitions,
        own_workers=spec.workers is not None or spec.guarantee == "ExactlyOnce",
        replicas=workers.replicas,
        autoscale=workers.autoscale,
        measures_due_lag=workers.measure_due_lag or workers.autoscale is not None,
        template=workers.template or WorkerTemplate(),
        protocol=spec.rebalance.protocol,
        assignor=spec.rebalance.assignor or ASSIGNORS[spec.rebalance.protocol][0],
        connection=connection_key(resource),
    )


def _delay_list(spec: DelayedTopicSpec) -> tuple[int, ...]:
    match spec.delay_seconds, spec.preset:
        case tuple(listed), None:
            return listed
        case None, preset if preset is not None:
            return PRESETS[preset]
    raise SpecInvalid("spec must have one of delaySeconds and preset, and not both")


def subject(
    resource: DelayedTopic, *, cluster: str, namespace_labels: dict[str, str], namespace_terminating: bool
) -> Subject:
    """`cluster`: the UID of the kube-system namespace."""
    meta = resource.metadata
    annotations = meta.annotations or {}
    return Subject(
        owner=Owner(cluster, meta.namespace or "", meta.name),
        uid=meta.uid or "",
        generation=meta.generation or 0,
        has_finalizer=FINALIZER in meta.finalizers,
        deleting=meta.deletion_timestamp is not None,
        plan_only=annotations.get(PLAN_ONLY) == "true",
        accepted_losses=accepted_losses(annotations),
        take_over_from=annotations.get(TAKE_OVER, "").strip(),
        status=resource.status,
        namespace_labels=namespace_labels,
        namespace_terminating=namespace_terminating,
        created_at=meta.creation_timestamp,
        acknowledged_audit=annotations.get(ACKNOWLEDGED_AUDIT),
    )
