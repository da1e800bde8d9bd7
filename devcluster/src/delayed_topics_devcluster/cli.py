"""The command line `devcluster`."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click

from delayed_topics_devcluster import cluster
from delayed_topics_devcluster.binaries import binaries
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.context import current_cluster
from delayed_topics_devcluster.crash import crash as kill_everything
from delayed_topics_devcluster.engine import engine_environment, engine_wheel
from delayed_topics_devcluster.errors import CommandFailedError
from delayed_topics_devcluster.go_tools import TOOLS, go_tool
from delayed_topics_devcluster.images import IMAGES, build_archive, chart_values
from delayed_topics_devcluster.kafka import java_command
from delayed_topics_devcluster.paths import ENGINE_SOURCE, KAFKA_TOOLS, cache_dir
from delayed_topics_devcluster.preconditions import require_java
from delayed_topics_devcluster.progress import say
from delayed_topics_devcluster.release import publish as publish_release
from delayed_topics_devcluster.release import release as make_release

__all__ = ["main"]

EVALUATION_KAFKA_PORT = 19094


@click.group()
def main() -> None:
    """A real Kubernetes and a real Kafka on one machine; with CONTEXT=name, that context of your kubeconfig."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # for iptables and ip; `su` leaves these folders out of PATH
    os.umask(0o022)  # so that files in images have the same modes, whoever builds them


@main.command()
def up() -> None:
    """Start the cluster, or do nothing if it is up."""
    current_cluster().up()


@main.command()
def prepare() -> None:
    """Build and fetch everything that the cluster and our images need, and start nothing."""
    cluster.prepare()


@main.command()
def programs() -> None:
    """Build Kubernetes and Helm if they aren't built yet; prints their folder."""
    click.echo(binaries())


@main.command()
@click.argument("name", type=click.Choice(sorted(TOOLS)))
def tool(name: str) -> None:
    """Build a program that is pinned in devcluster/ if it isn't built yet; prints its path."""
    click.echo(go_tool(name))


@main.command()
def engine() -> None:
    """Build the engine if anything of it has changed; prints its wheel."""
    click.echo(engine_wheel())


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def cargo(arguments: tuple[str, ...]) -> None:
    """Run cargo on the engine, with the settings with which the wheel is built: `devcluster cargo test`."""
    environment = {**os.environ, **engine_environment()}
    raise SystemExit(subprocess.run(["cargo", *arguments], cwd=ENGINE_SOURCE, env=environment, check=False).returncode)


@main.command()
def down() -> None:
    """End the cluster and remove every trace of it. Does nothing to a CONTEXT."""
    current_cluster().down()


@main.command()
def crash() -> None:
    """SIGKILL everything of the cluster, and the brokers of tests, and clean nothing up: the next start must cope."""
    kill_everything()


@main.command()
def status() -> None:
    """List the programs of the local cluster that run, and how much memory each takes."""
    found = cluster.status()
    for name, megabytes in found.resident_megabytes.items():
        click.echo(f"{name:<28}{megabytes:>6} MB")
    for name in found.ended:
        click.echo(f"{name:<28} ended")
    click.echo("up" if found.running else "not up")
    raise SystemExit(0 if found.running else 1)


@main.command("build-image")
@click.argument("names", nargs=-1, required=True, type=click.Choice(sorted(IMAGES)))
def build_image(names: tuple[str, ...]) -> None:
    """Build images if anything of them has changed; prints their archives."""
    for name in names:
        click.echo(build_archive(name).archive)


@main.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def release(folder: Path) -> None:
    """Make images, chart, SBOMs and provenance of this commit in FOLDER, for IMAGE_REGISTRY=registry/path."""
    make_release(folder.absolute())


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def publish(folder: Path) -> None:
    """Push what `release` made to IMAGE_REGISTRY; PLAIN_HTTP=1: to a registry without TLS. Prints the chart's address."""
    click.echo(publish_release(folder.absolute(), plain_http=bool(os.environ.get("PLAIN_HTTP"))))


@main.command()
@click.argument("images", nargs=-1, required=True)
@click.option(
    "--values",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write values for the chart there that name the images.",
)
def load(images: tuple[str, ...], values: Path | None) -> None:
    """Put images onto the cluster: names of ours (built if need be), or archives."""
    loaded = {image: current_cluster().load(image) for image in images}
    if values:
        values.parent.mkdir(parents=True, exist_ok=True)
        values.write_text(chart_values(loaded))
        say(f"{values} names the images for the chart: helm upgrade --install … --values {values}")


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def java(program: str, arguments: tuple[str, ...]) -> None:
    """Run java with Kafka's jars, on one of their classes or on a source file. devcluster/kafka-tools calls it by Kafka's own names."""
    require_java()
    os.environ.setdefault("KAFKA_LOG_LEVEL", "WARN")
    command = java_command(program, *arguments)
    os.execvp(command[0], command)


@main.command()
def kubeconfig() -> None:
    """Print the path of a kubeconfig whose current context is the cluster."""
    click.echo(current_cluster().kubeconfig)


@main.command()
def env() -> None:
    """Print what a shell has to `eval`: KUBECONFIG, PATH, and KAFKA_BOOTSTRAP of the evaluation Kafka if there is one.

    PATH then has kubectl, helm, delayed-topics and Kafka's console tools. CHART_NAMESPACE: the namespace of this Kafka.
    """
    chosen = current_cluster()
    programs = ":".join(map(str, (cache_dir("bin"), Path(sys.executable).parent, KAFKA_TOOLS)))
    click.echo(f"export KUBECONFIG={shlex.quote(str(chosen.kubeconfig))}")
    click.echo(f'export PATH={shlex.quote(programs)}:"$PATH"')
    bootstrap = os.environ.get("KAFKA_BOOTSTRAP")
    if bootstrap is None:
        addresses = "jsonpath={.items[*].status.podIP}"
        installation = os.environ.get("CHART_NAMESPACE")
        where = f"--namespace={installation}" if installation else "--all-namespaces"
        try:
            found = chosen.kubectl(
                *("get", "pods", where, "--output", addresses),
                "--selector=app.kubernetes.io/name=delayed-topics,app.kubernetes.io/component=kafka",
                "--field-selector=status.phase=Running",
            ).split()
        except CommandFailedError as error:
            reason = error.message.splitlines()[-1].strip()
            raise click.ClickException(f"the cluster does not answer ({reason}). Run `make cluster`") from None
        if len(found) > 1:
            raise click.ClickException(
                f"there are {len(found)} evaluation Kafkas. Set CHART_NAMESPACE to the namespace of the one to use"
            )
        bootstrap = "".join(f"{address}:{EVALUATION_KAFKA_PORT}" for address in found)
    if bootstrap:
        click.echo(f"export KAFKA_BOOTSTRAP={shlex.quote(bootstrap)}")


@main.group()
def broker() -> None:
    """A Kafka broker without Kubernetes."""


@broker.command("run")
def broker_run() -> None:
    """Run a broker on free loopback ports until Ctrl-C; prints KAFKA_BOOTSTRAP=…."""
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with Broker() as started:
        click.echo(f"KAFKA_BOOTSTRAP={started.bootstrap}")
        signal.sigwait(ends)
