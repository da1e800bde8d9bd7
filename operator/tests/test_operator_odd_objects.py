"""Objects of tenants that are unlike any other: the API server takes them, and no one but their owner has to notice."""

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Store, owner_uids
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.runtime import Runtime


def audit(version: int, *owners: str) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "a", "uid": "a", "resourceVersion": str(version)}
    references = [{"uid": owner} for owner in owners]
    return {"kind": "DelayedTopicAudit", "metadata": {**metadata, "ownerReferences": references}}


def test_an_audit_that_names_one_owner_twice_is_found_once_and_follows_every_change() -> None:
    store = Store()
    assert store.by_index("DelayedTopicAudit", owner_uids, "orders") == []
    store.put(audit(1, "orders", "orders"))
    assert store.by_index("DelayedTopicAudit", owner_uids, "orders") == [audit(1, "orders", "orders")]
    store.put(audit(2, "other", "other"))
    assert store.by_index("DelayedTopicAudit", owner_uids, "orders") == []
    store.gone(audit(2))
    assert store.by_index("DelayedTopicAudit", owner_uids, "other") == []


def test_an_error_that_no_one_expects_does_not_end_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        settings = Settings(
            namespace="system", audit_namespace="audits", worker_image="w", audit_image="a", resync_seconds=0.01
        )
        leadership = Leadership.without_end()
        runtime = Runtime(settings=settings, kube=cast(Kube, None), cluster="cluster", leadership=leadership)
        resyncs, again = list[str](), asyncio.Event()

        async def resync() -> bool:
            resyncs.append("begun")
            if len(resyncs) == 1:
                raise KeyError("a")
            again.set()
            return False

        monkeypatch.setattr(runtime, "resync", resync)
        running = asyncio.create_task(runtime.run())
        waiting = asyncio.create_task(again.wait())
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        assert not running.done()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    asyncio.run(story())
