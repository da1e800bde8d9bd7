"""The workers of a delayed topic's own: their labels, their StatefulSet and their configuration. Pure."""

from collections.abc import Mapping

from delayed_topics_operator.delayed_topic.reconcile.observation import Subject, Wanted
from delayed_topics_operator.values.labels import NAME_LABEL, NAMESPACE_LABEL, OF_WORKERS, label_value
from delayed_topics_operator.workers.reconcile.worker_sets import (
    SERVICE_ACCOUNT,
    PodSettings,
    WorkerSet,
    config,
    object_name,
    owner_reference,
)


def labels(subject: Subject) -> dict[str, str]:
    """Returns the labels of all objects and pods. They are also the selector of the pods."""
    return {**OF_WORKERS, NAMESPACE_LABEL: subject.namespace, NAME_LABEL: label_value(subject.name)}


def worker_set(*, subject: Subject, wanted: Wanted, pods: PodSettings, files: Mapping[str, str]) -> WorkerSet:
    """Returns the description of the delayed topic's own workers."""
    own = pods.home == subject.namespace
    reference = owner_reference("DelayedTopic", subject.name, subject.uid)
    return WorkerSet(
        name=object_name(namespace=subject.namespace, name=subject.name, home=pods.home),
        home=pods.home,
        labels=labels(subject),
        owner_reference=reference if own else None,
        service_account=None if own else SERVICE_ACCOUNT,
        replicas=wanted.replicas,
        template=wanted.template,
        config=worker_config(wanted),
        environment={"DELAYED_TOPIC_OWNER": str(subject.owner)},
        files=files,
        pods=pods,
    )


def worker_config(wanted: Wanted) -> str:
    """Returns worker.json. It has only what pods are replaced for; workers follow everything else in the registry."""
    return config(
        wanted.template,
        topics=[wanted.names.front],
        group=wanted.names.group,
        protocol=wanted.protocol.lower(),
        assignor=wanted.assignor,
        guarantee=wanted.spec.guarantee,
    )
