"""What the operator serves over HTTP."""

import asyncio
from pathlib import Path
from typing import cast

import aiohttp
import pytest
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_operator.engine.lease import Elector
from delayed_topics_operator.http import Health, serve

pytestmark = pytest.mark.process

INTERFACES = Path("/proc/net/if_inet6")
HAS_IPV6 = INTERFACES.exists() and f"{1:032x} " in INTERFACES.read_text()
"""Whether this machine has the address ::1."""


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", pytest.param("[::1]", marks=pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6"))],
)
def test_it_answers_at_the_addresses_of_either_family(address: str) -> None:
    """The kubelet probes the pod's address, which is an IPv6 address in an IPv6 cluster."""

    async def ask() -> str:
        (port,) = free_ports(1)
        runner = await serve(Health(elector=cast("Elector", None)), port=port)
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://{address}:{port}/livez") as answer:
                return await answer.text()
        finally:
            await runner.cleanup()

    assert asyncio.run(ask()) == "ok\n"
