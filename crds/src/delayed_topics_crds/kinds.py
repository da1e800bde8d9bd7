"""The resources by kind, with what a CRD needs besides the schema: names, printer columns and the scale subresource."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, overload

from pydantic import BaseModel

from delayed_topics_crds.audit import DelayedTopicAudit
from delayed_topics_crds.base import Resource
from delayed_topics_crds.connection import ClusterKafkaConnection, KafkaConnection
from delayed_topics_crds.delayed_topic import DelayedTopic

GROUP = "delayedtopics.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
# The category must not be "delayedtopics". kubectl looks for a category before it looks for a plural, so `kubectl get
# delayedtopics orders` would be an error and `kubectl delete delayedtopics --all` would delete connections as well.
CATEGORY = "delayed-topics"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of `kubectl get`. A `wide` column appears only with `-o wide`."""

    name: str
    path: str
    type: Literal["string", "integer", "date"] = "string"
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The JSON paths of the scale subresource."""

    spec_replicas: str
    status_replicas: str
    selector: str


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A resource. `name` is its kind. `short_name` must not be a short name of Kubernetes or Strimzi, because kubectl uses whichever of
    two equal names it finds first. With Strimzi, `kc` would mean KafkaConnect or this resource at random."""

    model: type[Resource]
    plural: str
    short_name: str
    columns: tuple[Column, ...]
    namespaced: bool = True
    scale: Scale | None = None

    @property
    def name(self) -> str:
        return self.model.__name__


_AGE = Column(name="Age", path=".metadata.creationTimestamp", type="date")
_READY = Column(name="Ready", path='.status.conditions[?(@.type=="Ready")].status')
_BOOTSTRAP = Column(name="Bootstrap", path=".spec.bootstrapServers[0]")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            model=DelayedTopic,
            plural="delayedtopics",
            short_name="dtopic",
            columns=(
                Column(name="Topic", path=".status.topic"),
                Column(name="Delays", path=".status.delays"),
                Column(name="Workers", path=".status.workers.readyReplicas", type="integer"),
                _READY,
                _AGE,
                Column(name="Produce-To", path=".status.produceTo", wide=True),
                Column(name="Consume-From", path=".status.consumeFrom", wide=True),
                Column(name="Verdict", path=".status.lastAudit.verdict", wide=True),
            ),
            scale=Scale(
                spec_replicas=".spec.workers.replicas",
                status_replicas=".status.workers.replicas",
                selector=".status.workers.selector",
            ),
        ),
        Kind(
            model=ClusterKafkaConnection,
            plural="clusterkafkaconnections",
            short_name="ckconn",
            columns=(_BOOTSTRAP, _READY, _AGE),
            namespaced=False,
        ),
        Kind(
            model=KafkaConnection,
            plural="kafkaconnections",
            short_name="kconn",
            columns=(_BOOTSTRAP, _READY, _AGE),
        ),
        Kind(
            model=DelayedTopicAudit,
            plural="delayedtopicaudits",
            short_name="dtaudit",
            columns=(
                Column(name="Topic", path=".spec.delayedTopicRef.name"),
                Column(name="Verdict", path=".status.verdict"),
                Column(name="Lost", path=".status.account.lost", type="integer"),
                Column(name="Early", path=".status.account.early", type="integer"),
                Column(name="Doubled", path=".status.account.doubled", type="integer"),
                _AGE,
            ),
        ),
    )
}


@overload
def parse(kind: Literal["DelayedTopic"], manifest: Mapping[str, Any]) -> DelayedTopic: ...
@overload
def parse(kind: Literal["ClusterKafkaConnection"], manifest: Mapping[str, Any]) -> ClusterKafkaConnection: ...
@overload
def parse(kind: Literal["KafkaConnection"], manifest: Mapping[str, Any]) -> KafkaConnection: ...
@overload
def parse(kind: Literal["DelayedTopicAudit"], manifest: Mapping[str, Any]) -> DelayedTopicAudit: ...
def parse(kind: str, manifest: Mapping[str, Any]) -> Resource:
    """Returns the model of a manifest or of an object from the API server, with defaults filled in.

    Raises pydantic's ValidationError for an object that does not fit the model, and KeyError for an unknown kind.
    """
    # An object in a list from the API server has no kind and no apiVersion of its own.
    return KINDS[kind].model.model_validate(
        {"apiVersion": API_VERSION, "kind": kind, **manifest}, by_alias=True, by_name=False
    )


def to_dict(model: BaseModel) -> dict[str, Any]:
    """Returns the model in the form of a manifest: camelCase names and JSON values, without fields that are not set."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
