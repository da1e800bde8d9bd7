"""The command line: `delayed-topics-operator run`."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml
from delayed_topics_crds.pods import LabelSelector
from pydantic import ValidationError

from delayed_topics_operator.default_connection import apply_default_connection
from delayed_topics_operator.errors import KubeError, TenureOver
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.http import Health, serve
from delayed_topics_operator.lease import Candidate, Elector, Times
from delayed_topics_operator.observe.children import WATCHED
from delayed_topics_operator.reconcile.invalid import problems
from delayed_topics_operator.runtime import CLUSTER_WIDE, Runtime
from delayed_topics_operator.settings import Settings
from delayed_topics_operator.tenure import Tenure
from delayed_topics_operator.watch import Watches

log = logging.getLogger(__name__)

API_SERVER_WAIT_SECONDS = 2.0
T = TypeVar("T")


def _pairs(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{pair!r} must be KEY=VALUE")
        found[key] = value
    return found


def _selector(_context: click.Context, _parameter: click.Parameter, given: str | None) -> LabelSelector | None:
    if given is None:
        return None
    try:
        return LabelSelector.model_validate_json(given)
    except ValidationError as e:
        raise click.BadParameter(f"it must be a LabelSelector in JSON: {problems(e)}") from e


@click.group()
def main() -> None:
    """The operator of delayed topics."""


@main.command()
@click.option(
    "--namespace", required=True, help="Where the operator runs: Secrets and workers of cluster connections live here."
)
@click.option(
    "--audit-namespace",
    required=True,
    help="Where audits of cluster connections run. Another than --namespace, whose Secrets are none of theirs.",
)
@click.option(
    "--audit-executors",
    is_flag=True,
    help="Audits may have executors: their Jobs may make pods in --audit-namespace and in tenants' namespaces.",
)
@click.option(
    "--audit-spark-applications",
    is_flag=True,
    help="Audits with executors may be SparkApplications, which the Spark Operator of Kubeflow runs.",
)
@click.option(
    "--tenant-namespace",
    "tenant_namespaces",
    multiple=True,
    help="A namespace that lets the operator in, for KafkaConnections there. May be repeated.",
)
@click.option(
    "--tenant-selector",
    callback=_selector,
    metavar="JSON",
    help='Labels by which further such namespaces are known, as a LabelSelector: {"matchLabels": {"delayed-topics": "own"}}',
)
@click.option("--worker-image", required=True, help="Image of the worker pods.")
@click.option("--audit-image", required=True, help="Image of the audit Jobs.")
@click.option(
    "--image-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    default="IfNotPresent",
    show_default=True,
)
@click.option(
    "--pod-label",
    "pod_labels",
    multiple=True,
    callback=_pairs,
    help="KEY=VALUE: a label of every pod of workers and audits. May be repeated.",
)
@click.option(
    "--pod-annotation",
    "pod_annotations",
    multiple=True,
    callback=_pairs,
    help="KEY=VALUE: an annotation of every pod of workers and audits. May be repeated.",
)
@click.option(
    "--audit-fs-group",
    type=click.IntRange(1),
    help="Group that may write to the claim that an audit is kept on. The cluster chooses it unless set.",
)
@click.option(
    "--default-connection",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A manifest of a ClusterKafkaConnection that is applied at the start.",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="For /livez, /readyz and /metrics.",
)
@click.option(
    "--resync-seconds",
    type=click.FloatRange(1),
    default=30.0,
    show_default=True,
    help="How often everything is compared.",
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
    help="How long what was made for a resource may be there without it; then it is removed.",
)
@click.option(
    "--identity",
    default=socket.gethostname,
    show_default="the host's name",
    help="Of this process among those that may be the operator of the installation: the name of its pod.",
)
@click.option(
    "--lease-seconds",
    type=click.IntRange(3),
    default=15,
    show_default=True,
    help="How long another operator of the installation waits after the last sign of life before it takes over. This one ends "
    "when it could not renew its lease for two thirds of that.",
)
@click.option(
    "--registry-mebibytes",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="The most keys and values of a connection's registry that are held. In memory they take about four times that.",
)
@click.option("--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING"]), default="INFO", show_default=True)
def run(log_level: str, default_connection: Path | None, **options: Any) -> None:
    """Run until SIGTERM."""
    logging.basicConfig(level=log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel("CRITICAL")  # what ends a watch is logged by ours
    manifest = yaml.safe_load(default_connection.read_text()) if default_connection else None
    asyncio.run(_run(Settings(**options), manifest))


async def _run(settings: Settings, default_connection: dict[str, Any] | None) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    tenure = Tenure()
    # Two sets of connections: the lease is renewed whatever all else waits for.
    kube, electing = await Kube.connect(before_writing=tenure.check), await Kube.connect()
    candidate = Candidate(settings.identity, Times(duration_seconds=settings.lease_seconds))
    elector = Elector(electing, namespace=settings.namespace, candidate=candidate, tenure=tenure)
    ends = [asyncio.create_task(end.wait()) for end in (stopped, tenure.over)]
    serving = asyncio.create_task(_serve(settings, kube, elector, tenure, default_connection))
    await asyncio.wait((serving, *ends), return_when=asyncio.FIRST_COMPLETED)
    lost, failed = tenure.ended, serving.done()
    tenure.end("it was stopped")
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
        log.error("%s. This process ends, so that there is one operator", lost)
        sys.exit(1)


async def _serve(
    settings: Settings, kube: Kube, elector: Elector, tenure: Tenure, default_connection: dict[str, Any] | None
) -> None:
    """Until cancelled."""
    health = Health(elector)
    http = await serve(health, port=settings.http_port)
    try:
        await elector.won()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(elector.hold())
            tasks.create_task(_reconcile(settings, kube, health, tenure, default_connection))
    except* TenureOver:  # of a call that nobody else answers for
        tenure.end("the lease could not be renewed in time")
    finally:
        await http.cleanup()


async def _reconcile(
    settings: Settings, kube: Kube, health: Health, tenure: Tenure, default_connection: dict[str, Any] | None
) -> None:
    """Until cancelled."""
    runtime = Runtime(settings=settings, kube=kube, cluster=await _cluster_uid(kube), tenure=tenure)
    health.runtime = runtime
    if default_connection is not None:
        await _until_done(lambda: apply_default_connection(kube, default_connection, namespace=settings.namespace))
    watches = Watches(CLUSTER_WIDE, WATCHED, runtime.seen)
    runtime.follow = watches.follow
    try:
        await runtime.run()
    finally:
        await watches.stop()


async def _cluster_uid(kube: Kube) -> str:
    """Tells this Kubernetes cluster from others that use the same Kafka."""
    namespace = await _until_done(lambda: kube.get("Namespace", None, "kube-system"))
    return str(namespace["metadata"]["uid"])


async def _until_done(call: Callable[[], Awaitable[T]]) -> T:
    """At the start the API server, or the definitions of our resources, may not be there yet."""
    while True:
        try:
            return await call()
        except KubeError as e:
            log.warning("%s", e)
            await asyncio.sleep(API_SERVER_WAIT_SECONDS)
