"""The command line: `delayed-topics-operator run`."""

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml
from delayed_topics_crds.pods import LabelSelector
from pydantic import BaseModel, ValidationError

from delayed_topics_operator.connection.default_connection import apply_default_connection
from delayed_topics_operator.engine.lease import Candidate, Elector, Times
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.watch import Watches
from delayed_topics_operator.errors import KubeError, LeadershipLost
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.http import Health, serve
from delayed_topics_operator.runtime import CLUSTER_WIDE, Runtime
from delayed_topics_operator.values.pod_spec import PodDefaults
from delayed_topics_operator.values.validation import problems
from delayed_topics_operator.workers.observe import WATCHED

log = logging.getLogger(__name__)

API_SERVER_WAIT_SECONDS = 2.0
DEFAULT_CONNECTION_SECONDS = 10.0
"""How long the start waits until the default connection is applied, so that no resource finds it missing. If a webhook that is down refuses
it for longer, all other connections are served in the meantime."""
GARBAGE_OBJECTS = 50_000
"""The number of new objects after which Python's garbage collector looks for cycles."""
JSON_LEVELS = 10_000
"""Levels of nesting that the API server accepts in an object, for example in `metadata.managedFields`, which anyone may write who may write
the object. By default Python parses only a thousand, and one such object would keep the operator from reading all others of its kind.
Parsing this many levels takes 2 MB of stack."""
T = TypeVar("T")


def _pairs(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{pair!r} must be KEY=VALUE")
        found[key] = value
    return found


def _json(model: type[BaseModel]) -> Callable[[click.Context, click.Parameter, str | None], BaseModel | None]:
    """Returns a callback that parses JSON with the fields of the model."""

    def parsed(_context: click.Context, _parameter: click.Parameter, given: str | None) -> BaseModel | None:
        try:
            return model.model_validate_json(given) if given is not None else None
        except ValidationError as e:
            raise click.BadParameter(f"it must be a {model.__name__} in JSON: {problems(e)}") from e

    return parsed


@click.group()
def main() -> None:
    """The operator of delayed topics."""


@main.command()
@click.option(
    "--namespace",
    required=True,
    help="The namespace of the operator. It has the Secrets and workers of cluster connections.",
)
@click.option(
    "--audit-namespace",
    required=True,
    help="The namespace in which audits of cluster connections run. Must not be --namespace, so that audits can't reach the Secrets there.",
)
@click.option(
    "--audit-executors",
    is_flag=True,
    help="Allow audits with executors. Their Jobs may then create pods in --audit-namespace and in the namespaces of tenants.",
)
@click.option(
    "--audit-spark-applications",
    is_flag=True,
    help="Allow audits with executors to be SparkApplications. The Spark Operator of Kubeflow runs these.",
)
@click.option(
    "--tenant-namespace",
    "tenant_namespaces",
    multiple=True,
    help="A namespace that lets the operator serve its KafkaConnections. Can be repeated.",
)
@click.option(
    "--tenant-selector",
    callback=_json(LabelSelector),
    metavar="JSON",
    help='A LabelSelector that selects further such namespaces: {"matchLabels": {"delayed-topics": "own"}}',
)
@click.option("--worker-image", required=True, help="The image of the worker pods.")
@click.option("--audit-image", required=True, help="The image of the audit Jobs.")
@click.option(
    "--image-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    default="IfNotPresent",
    show_default=True,
    help="The pull policy of both images.",
)
@click.option(
    "--pod-label",
    "pod_labels",
    multiple=True,
    callback=_pairs,
    help="A label (KEY=VALUE) for every pod of workers and audits. Can be repeated.",
)
@click.option(
    "--pod-annotation",
    "pod_annotations",
    multiple=True,
    callback=_pairs,
    help="An annotation (KEY=VALUE) for every pod of workers and audits. Can be repeated.",
)
@click.option(
    "--pod-defaults",
    callback=_json(PodDefaults),
    metavar="JSON",
    default="{}",
    help='Where these pods run unless their resource says otherwise: {"nodeSelector": {}, "tolerations": [], "priorityClassName": "high"}',
)
@click.option(
    "--audit-fs-group",
    type=click.IntRange(1),
    help="The group that may write to the claim on which the account of an audit is kept. Unless set, the cluster chooses it.",
)
@click.option(
    "--default-connection",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A manifest of a ClusterKafkaConnection. The operator applies it when it starts.",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="The port of /livez, /readyz and /metrics.",
)
@click.option(
    "--resync-seconds",
    type=click.FloatRange(1),
    default=30.0,
    show_default=True,
    help="How often the operator compares all resources with what exists.",
)
@click.option(
    "--gone-after-seconds",
    type=click.FloatRange(0),
    default=300.0,
    show_default=True,
    help="How long a deletion waits for Kafka or its credentials before it leaves the topics as they are.",
)
@click.option(
    "--orphans-after-seconds",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    help="How long objects of a resource may exist after the resource is gone. Then the operator removes them.",
)
@click.option(
    "--identity",
    default=socket.gethostname,
    show_default="the host's name",
    help="The name of this process among those that may be the operator of the installation, which is the name of its pod.",
)
@click.option(
    "--lease-seconds",
    type=click.IntRange(3),
    default=15,
    show_default=True,
    help="How long another operator of the installation waits after the last renewal of the lease before it takes over. This "
    "operator ends if it can't renew its lease for two thirds of that time.",
)
@click.option(
    "--registry-mebibytes",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="The limit for the keys and values of one connection's registry. They take about four times as much memory.",
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING"]),
    default="INFO",
    show_default=True,
    help="How much the operator logs.",
)
def run(log_level: str, default_connection: Path | None, **options: Any) -> None:
    """Run the operator until SIGTERM."""
    logging.basicConfig(level=log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel("CRITICAL")  # engine/watch.py logs why a watch ended
    manifest = yaml.safe_load(default_connection.read_text()) if default_connection else None
    _collect_less_often()
    sys.setrecursionlimit(2 * JSON_LEVELS)
    asyncio.run(_run(Settings(**options), manifest))


def _collect_less_often() -> None:
    """Makes Python's garbage collector run less often.

    The operator holds many objects and creates few cycles. With Python's default thresholds, each long list from the API server would
    trigger collections that scan all objects.
    """
    gc.collect()
    gc.freeze()  # imported modules stay for the life of the process
    gc.set_threshold(GARBAGE_OBJECTS, 20, 20)


async def _run(settings: Settings, default_connection: dict[str, Any] | None) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    leadership = Leadership()
    # The elector has connections of its own, so that it can renew the lease while all other calls wait.
    kube, electing = await Kube.connect(before_writing=leadership.check), await Kube.connect()
    candidate = Candidate(settings.identity, Times(duration_seconds=settings.lease_seconds))
    elector = Elector(electing, namespace=settings.namespace, candidate=candidate, leadership=leadership)
    ends = [asyncio.create_task(end.wait()) for end in (stopped, leadership.over)]
    serving = asyncio.create_task(_serve(settings, kube, elector, leadership, default_connection))
    await asyncio.wait((serving, *ends), return_when=asyncio.FIRST_COMPLETED)
    lost, failed = leadership.ended, serving.done()
    leadership.end("this process was stopped")
    serving.cancel()
    try:
        await serving
    except asyncio.CancelledError:
        if failed:
            raise
    finally:
        await elector.release()
        await electing.close()
        await kube.close()
    if lost is not None:
        log.error("%s. This process ends, so that only one operator acts", lost)
        sys.exit(1)


async def _serve(
    settings: Settings, kube: Kube, elector: Elector, leadership: Leadership, default_connection: dict[str, Any] | None
) -> None:
    """Serves /livez, /readyz and /metrics, waits for the lease, and then reconciles until it is cancelled."""
    health = Health(elector)
    http = await serve(health, port=settings.http_port)
    try:
        await elector.won()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(elector.hold())
            tasks.create_task(_reconcile(settings, kube, health, leadership, default_connection))
    except* LeadershipLost:  # from a call whose caller does not handle it
        leadership.end("the lease could not be renewed in time")
    finally:
        await http.cleanup()


async def _reconcile(
    settings: Settings, kube: Kube, health: Health, leadership: Leadership, default_connection: dict[str, Any] | None
) -> None:
    """Applies the default connection, if there is one, and runs watches and controllers until it is cancelled."""
    runtime = Runtime(settings=settings, kube=kube, cluster=await _cluster_uid(kube), leadership=leadership)
    health.runtime = runtime
    async with asyncio.TaskGroup() as tasks:
        if default_connection is not None:
            call = partial(apply_default_connection, kube, default_connection, namespace=settings.namespace)
            applied = tasks.create_task(_until_done(call))
            await asyncio.wait([applied], timeout=DEFAULT_CONNECTION_SECONDS)
        watches = Watches(CLUSTER_WIDE, WATCHED, runtime.seen, home=settings.namespace)
        runtime.follow = watches.follow
        try:
            await runtime.run()
        finally:
            await watches.stop()


async def _cluster_uid(kube: Kube) -> str:
    """Returns the UID that distinguishes this Kubernetes cluster from others that use the same Kafka."""
    namespace = await _until_done(lambda: kube.get("Namespace", None, "kube-system"))
    return str(namespace["metadata"]["uid"])


async def _until_done(call: Callable[[], Awaitable[T]]) -> T:
    """Repeats the call until it succeeds. When the operator starts, the API server or the CRDs may not be available yet."""
    while True:
        try:
            return await call()
        except KubeError as e:
            log.warning("%s", e)
            await asyncio.sleep(API_SERVER_WAIT_SECONDS)
