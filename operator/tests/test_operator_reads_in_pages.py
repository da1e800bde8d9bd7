"""Long lists are read from a real API server in pages, even if it forgets the state of the first page meanwhile."""

import asyncio
from typing import Any

import pytest
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator_testing.kube_api import KubeApi
from kubernetes import aio

pytestmark = pytest.mark.api

NAMES = [f"page-{n}" for n in range(5)]
LABELS = {"of": "the-test-of-pages"}


class Slow(Kube):
    """Requests the second page when the API server has forgotten the state of which it sent the first one."""

    def __init__(self, client: aio.client.ApiClient, api: KubeApi) -> None:
        super().__init__(client, before_writing=lambda: None)
        self.api = api
        self.asked: list[list[tuple[str, str]]] = []

    async def _call(self, *arguments: Any, **further: Any) -> dict[str, Any]:
        self.asked.append(further["query"])
        answer = await super()._call(*arguments, **further)
        if len(self.asked) == 1:
            await asyncio.to_thread(self.api.server.forget_the_past)
        return answer


async def client(api: KubeApi) -> aio.client.ApiClient:
    configuration = type.__call__(aio.client.Configuration)
    await aio.config.load_kube_config(str(api.server.kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
    return aio.client.ApiClient(configuration)


async def listed(kube: Kube) -> list[str]:
    try:
        found = await kube.list_all("Event", "default", labels="of=the-test-of-pages", page_items=2)
    finally:
        await kube.close()
    return sorted(item["metadata"]["name"] for item in found)


@pytest.fixture
def events(api: KubeApi) -> None:
    """Creates Events. Of other kinds, the API server has states in memory that etcd has forgotten."""
    about = {"kind": "Namespace", "name": "default", "namespace": "default"}
    metas = ({"namespace": "default", "name": name, "labels": LABELS} for name in NAMES)
    api.apply(*({"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": about} for meta in metas))


@pytest.mark.usefixtures("events")
def test_all_pages_are_read(api: KubeApi) -> None:
    async def story() -> list[str]:
        return await listed(Kube(await client(api), before_writing=lambda: None))

    assert asyncio.run(story()) == NAMES


@pytest.mark.usefixtures("events")
def test_a_list_whose_state_is_forgotten_between_two_pages_is_read_at_once(api: KubeApi) -> None:
    async def story() -> tuple[list[str], list[list[tuple[str, str]]]]:
        kube = Slow(await client(api), api)
        return await listed(kube), kube.asked

    names, asked = asyncio.run(story())
    assert names == NAMES
    assert [[name for name, _ in query] for query in asked] == [
        ["labelSelector", "limit"],
        ["labelSelector", "limit", "continue"],
        ["labelSelector"],
    ]
