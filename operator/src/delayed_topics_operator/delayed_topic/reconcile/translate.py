"""Translates the models of the resources into the terms of core. The checks do not need to know what a manifest looks like."""

from delayed_topics_core.errors import IllegalTopicName
from delayed_topics_core.layout import LayoutSpec, ladder
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import Owner
from delayed_topics_crds import DelayedTopic
from delayed_topics_crds.delayed_topic import ASSIGNORS, PRESETS, DelayedTopicSpec, Workers, WorkerTemplate

from delayed_topics_operator.delayed_topic.reconcile.observation import Subject, Wanted
from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator.values.annotations import (
    ACKNOWLEDGED_AUDIT,
    FINALIZER,
    PLAN_ONLY,
    TAKE_OVER,
    accepted_losses,
)
from delayed_topics_operator.values.key import Key


def connection_key(resource: DelayedTopic) -> Key:
    """Returns the key of the connection that a resource names."""
    ref = resource.spec.connection_ref
    namespace = resource.metadata.namespace or "" if ref.kind == "KafkaConnection" else ""
    return Key(ref.kind, namespace, ref.name)


def wanted(resource: DelayedTopic) -> Wanted:
    """Returns what a resource asks for. Raises SpecInvalid only if a CRD of another version is installed: the API server checks the
    same."""
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
    """Returns the resource itself as a value. `cluster`: the UID of the kube-system namespace."""
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
