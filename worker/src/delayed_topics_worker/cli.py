"""The command `delayed-topics-worker`, which runs the relay as a process."""

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click
from delayed_topics_core.errors import DelayedTopicsError
from delayed_topics_core.reasons import EXIT_PROTOCOL_REFUSED
from delayed_topics_kafka.clock import boot_seconds
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import ConnectionInvalid

from delayed_topics_worker.config import WorkerConfig
from delayed_topics_worker.errors import ConfigInvalid, ProtocolRefused
from delayed_topics_worker.log import set_up
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.relay import Relay
from delayed_topics_worker.served import ServedTopics
from delayed_topics_worker.web import PublishedStatus, serve

EXIT_FAILED = 1
EXIT_CONFIG = 2


@click.command(context_settings={"max_content_width": 120})
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=Path("/etc/delayed-topics/worker.json"),
    show_default=True,
    help="The configuration, a JSON file. It has topics (or group, to serve all topics of that consumer group), http_port, "
    "window_bytes, protocol (classic or consumer), assignor (Range, RoundRobin or Sticky, and with consumer Uniform or Range), "
    "guarantee (AtLeastOnce or ExactlyOnce), commit_interval_ms and renew_commits_seconds.",
)
@click.option(
    "--connection",
    "connection_path",
    type=click.Path(path_type=Path),
    default=Path("/etc/delayed-topics/connection"),
    show_default=True,
    help="The folder of a mounted Secret. It has bootstrap-servers, and as needed security-protocol, sasl-mechanism, username, "
    "password, ca.crt, tls.crt and tls.key. For tokens it has token-endpoint-url, token-endpoint-ca.crt, oauth-client-id, "
    "oauth-client-secret, oauth-scope and oauth-extensions.",
)
def main(config_path: Path, connection_path: Path) -> None:
    """Release the due records of delayed topics, and hop the others, until SIGTERM.

    The worker follows everything about a topic (layout, retry cap, pause, group) live in delayedtopics.registry. Its name in the consumer
    group is POD_NAME, or else the host's name. POD_TEMPLATE tells pods of an edited spec from those before. If DELAYED_TOPIC_OWNER is set
    to an owner as the registry writes it (cluster/namespace/name), the worker serves no topic that another owner has taken over. It serves
    /livez, /readyz, /metrics and /status.

    Exit code 0 means that the worker ended after SIGTERM, 2 that it can't use its configuration, 3 that Kafka doesn't have the rebalance
    protocol or the assignor, and 1 that Kafka has shut this member out for good.
    """
    _on_stop(sys.exit)  # nothing is assigned yet; without a handler, a container's first process ignores SIGTERM
    set_up()
    try:
        config = WorkerConfig.read(config_path)
        connection = Connection.from_directory(connection_path)
    except (ConfigInvalid, ConnectionInvalid) as e:
        click.echo(f"Error: {e}", err=True)
        sys.exit(EXIT_CONFIG)
    try:
        _run(config, connection)
    except DelayedTopicsError as e:
        click.echo(f"Error: {e}", err=True)
        _end(_exit_code(e))
    _end(0)


def _exit_code(error: DelayedTopicsError) -> int:
    match error:
        case ConfigInvalid() | ConnectionInvalid():
            return EXIT_CONFIG
        case ProtocolRefused():
            return EXIT_PROTOCOL_REFUSED
        case _:
            return EXIT_FAILED


def _run(config: WorkerConfig, connection: Connection) -> None:
    member = os.environ.get("POD_NAME") or socket.gethostname()
    served = ServedTopics(config, os.environ.get("DELAYED_TOPIC_OWNER", ""))
    metrics = Metrics()
    published = PublishedStatus(boot_seconds)
    template = os.environ.get("POD_TEMPLATE", "")
    relay = Relay(config, connection, served, member=member, template=template, metrics=metrics, published=published)
    _on_stop(relay.stop)
    try:
        server = serve(published, metrics, config.http_port)
    except OSError as e:
        raise ConfigInvalid(f"http_port {config.http_port} can't be used: {e.strerror}") from e
    try:
        relay.run()
    finally:
        server.shutdown()


def _end(code: int) -> NoReturn:
    """Ends the process without closing the Kafka clients. Each of them would wait for a name server, however long that takes to answer."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _on_stop(stop: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())
