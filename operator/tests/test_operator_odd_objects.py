"""Odd objects of tenants: the API server accepts them, and no one but their owner has to notice."""

import asyncio
import json
from contextlib import suppress
from typing import Any, cast

import pytest
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Store, owner_uids
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.runtime import Runtime
from delayed_topics_operator_testing.operator_harness import OperatorHarness

LEVELS = 9_000
"""The API server accepts 10,000 nested levels in the whole object."""


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


AUDITS = "/apis/delayedtopics.io/v1alpha1/namespaces/{}/delayedtopicaudits"


def create(harness: OperatorHarness, name: str, metadata: str) -> None:
    """Creates an audit with these further metadata, given as JSON, because some are nested too deeply for Python's encoder."""
    body = f"""{{
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopicAudit",
        "metadata": {{"name": "{name}", {metadata}}},
        "spec": {{"delayedTopicRef": {{"name": "none"}}}}
    }}"""
    path = AUDITS.format(harness.namespace)
    harness.api.kubectl("create", f"--raw={path}", "--filename=-", text_in=body)


@pytest.mark.api
def test_audits_that_are_unlike_any_other_keep_no_other_resource_from_being_served(harness: OperatorHarness) -> None:
    """In the past, each of these audits ended the operator, and the second one kept it from starting again."""
    harness.apply()
    owner = {"apiVersion": "delayedtopics.io/v1alpha1", "kind": "DelayedTopic", "name": harness.topic}
    owner["uid"] = (harness.resource() or {})["metadata"]["uid"]
    create(harness, "twice", f'"ownerReferences": {json.dumps([owner, {**owner, "blockOwnerDeletion": False}])}')
    fields = '{"f:a":' * LEVELS + "{}" + "}" * LEVELS
    entry = f'"manager": "tenant", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {fields}'
    create(harness, "deep", f'"managedFields": [{{"apiVersion": "delayedtopics.io/v1alpha1", {entry}}}]')
    try:
        harness.replace_operator()
        harness.wait_until_served()
        assert harness.operator.counted("delayedtopics_operator_watch_restarts_total", scope="all namespaces") == 0
        assert not harness.operator.ended()
    finally:
        harness.api.delete("DelayedTopicAudit", "deep", harness.namespace)


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
