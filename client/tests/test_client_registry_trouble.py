"""Applications keep sending while the registry is lost or can't be read."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from delayed_topics import DelayedTopic
from delayed_topics.cli import main
from delayed_topics_client_testing import serve
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LOST_SECONDS = 15


def may_send_to_invoices(orders: DelayedTopic) -> bool:
    try:
        orders.send(b"x", target="invoices")
    except ValueError:
        return False
    return True


def test_after_an_outage_the_registry_is_followed_again_and_the_outage_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After some outages, a client of the library never finds a broker again and says nothing of it."""
    with Broker(settings=PATIENT) as broker:
        served = serve(Connection(bootstrap_servers=broker.bootstrap), "orders")
        with DelayedTopic.connect(served.bootstrap, "orders") as orders:
            broker.stop()

            def is_logged() -> bool:
                orders.send(b"x")
                time.sleep(0.5)
                return any("can't follow the registry" in record.message for record in caplog.records)

            wait_until(is_logged, what="the client logs that it can't follow the registry")
            broker.start()
            served.write_layout(replace(served.layout, ready_topics=(AllowedTopic("invoices", 0),)))

            wait_until(lambda: may_send_to_invoices(orders), what="the client follows the registry again")


def test_a_registry_that_is_lost_and_restored_stops_no_producer_and_is_followed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(settings=PATIENT) as broker:
        served = serve(Connection(bootstrap_servers=broker.bootstrap), "orders")

        def registry(*arguments: str) -> Result:
            return CliRunner().invoke(main, ["--bootstrap", broker.bootstrap, "registry", *arguments])

        file = tmp_path / "registry.json"
        file.write_text(registry("export").stdout)
        with DelayedTopic.connect(served.bootstrap, "orders") as orders:
            sent = 0
            KafkaAdmin(served.connection).delete_topics([REGISTRY_TOPIC])
            until = time.monotonic() + LOST_SECONDS
            while time.monotonic() < until:
                orders.send(b"x")
                sent += 1
                time.sleep(0.05)
            assert orders.layout == served.layout
            assert registry("import", str(file)).exit_code == 0
            served.write_layout(replace(served.layout, ready_topics=(AllowedTopic("invoices", 0),)))

            wait_until(lambda: may_send_to_invoices(orders), what="the client follows the restored registry")
        assert len(served.read("orders")) == sent + 1
    logged = [record.message for record in caplog.records if record.name.startswith("delayed_topics.")]
    assert len(logged) == 1, "the client logs the failure once"
    assert "the client of topic orders can't follow the registry, and goes by what it said last" in logged[0]
