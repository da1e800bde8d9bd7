"""What the operator serves over HTTP."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import aiohttp
import pytest
from delayed_topics_crds import API_VERSION
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_operator.engine.lease import Elector
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.http import Health, serve
from delayed_topics_operator.runtime import Runtime
from delayed_topics_operator.values.manifest import Manifest

pytestmark = pytest.mark.process

INTERFACES = Path("/proc/net/if_inet6")
HAS_IPV6 = INTERFACES.exists() and f"{1:032x} " in INTERFACES.read_text()
"""Whether this machine has the address ::1."""


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", pytest.param("[::1]", marks=pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6"))],
)
def test_the_operator_answers_at_addresses_of_either_family(address: str) -> None:
    """The kubelet probes the pod's address, which is an IPv6 address in an IPv6 cluster."""

    assert asyncio.run(answers(Health(elector=cast("Elector", None)), "/livez", address=address)) == ["ok\n"]


@pytest.mark.parametrize(
    ("status", "served"),
    [
        ({}, "false"),
        ({"layout": {"state": "planned"}, "topics": []}, "false"),
        ({"layout": {"state": "planned"}, "topics": [{"role": "front"}]}, "true"),
        ({"layout": {"state": "serving"}, "topics": []}, "true"),
    ],
    ids=["refused", "no-topic-yet", "grows", "its-topics-were-deleted"],
)
def test_the_metrics_say_at_each_scrape_which_delayed_topics_are_not_ready_and_which_of_them_were_served(
    status: Manifest, served: str
) -> None:
    """With `resyncSeconds: 3600`, the metrics were up to an hour old."""

    def orders(ready: str, version: str) -> Manifest:
        condition = {"type": "Ready", "status": ready, "reason": "InProgress" if ready == "False" else "AsDeclared"}
        meta = {"namespace": "shop", "name": "orders", "uid": "u", "resourceVersion": version}
        spec = {"connectionRef": {"kind": "ClusterKafkaConnection", "name": "default"}}
        return {
            "apiVersion": API_VERSION,
            "kind": "DelayedTopic",
            "metadata": {**meta, "creationTimestamp": "2026-01-02T10:20:00Z"},
            "spec": spec,
            "status": {**status, "conditions": [condition]},
        }

    async def scrapes() -> list[str]:
        settings = Settings(namespace="system", audit_namespace="audits", worker_image="w", audit_image="a")
        runtime = Runtime(
            settings=settings, kube=cast("Kube", None), cluster="cluster", leadership=Leadership.without_end()
        )
        events = [partial(runtime.seen, None, orders(*state)) for state in (("False", "1"), ("True", "2"))]
        return await answers(Health(elector=cast("Elector", None), runtime=runtime), "/metrics", after=events)

    not_ready, ready = asyncio.run(scrapes())
    series = 'delayedtopics_operator_not_ready{reason="InProgress",resource_name="orders",resource_namespace="shop",'
    assert f'{series}served="{served}"}} 1.0' in not_ready
    assert series not in ready


async def answers(
    health: Health, path: str, *, address: str = "127.0.0.1", after: Sequence[Callable[[], None]] = (lambda: None,)
) -> list[str]:
    """Returns what the operator answers after each of these calls."""
    (port,) = free_ports(1)
    runner = await serve(health, port=port)
    found = []
    try:
        async with aiohttp.ClientSession() as session:
            for call in after:
                call()
                async with session.get(f"http://{address}:{port}{path}") as answer:
                    found.append(await answer.text())
    finally:
        await runner.cleanup()
    return found
