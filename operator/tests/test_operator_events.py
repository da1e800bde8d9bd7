"""Events that the API server does not take at once."""

import asyncio
from typing import cast

from delayed_topics_operator.errors import Forbidden, KubeError, KubeUnreachable
from delayed_topics_operator.gateways import recorder as gateways_recorder
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.recorder import Recorder
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import Notice
from delayed_topics_operator_testing.simulation import resource


class Events:
    """Takes Events, except while `error` is set."""

    def __init__(self) -> None:
        self.error: KubeError | None = None
        self.told: list[str] = []
        self.asked = 0

    async def create(self, body: Manifest) -> Manifest:
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.told.append(body["message"])
        return body


async def tell(recorder: Recorder, *messages: str, uid: str = "u") -> None:
    """Makes a pass that has these messages to tell."""
    await recorder.emit(resource(uid=uid), [Notice(type="Normal", reason="Claimed", message=m) for m in messages])


def test_an_event_that_the_api_server_did_not_answer_is_written_in_the_next_pass_and_once() -> None:
    async def story() -> None:
        events = Events()
        recorder = Recorder(cast(Kube, events), lambda: now[0])
        events.error = KubeUnreachable("no answer")
        await tell(recorder, "a", "b")
        await tell(recorder, "c")
        events.error = None
        now[0] = gateways_recorder.AGAIN_SECONDS
        await tell(recorder, uid="another")
        assert events.told == []
        await tell(recorder, "b")
        await tell(recorder)
        assert events.told == ["a", "b", "c"]

    now = [0.0]
    asyncio.run(story())


def test_an_api_server_that_answers_no_event_is_not_asked_again_in_each_pass() -> None:
    async def story() -> None:
        events = Events()
        recorder = Recorder(cast(Kube, events), lambda: 0.0)
        events.error = KubeUnreachable("no answer")
        await tell(recorder, "a", "b", "c")
        events.asked = 0
        for _ in range(5):
            await tell(recorder, "a")
        assert events.asked == 0

    asyncio.run(story())


def test_an_event_that_is_refused_is_not_tried_again_and_those_that_wait_take_bounded_memory() -> None:
    async def story() -> None:
        events = Events()
        recorder = Recorder(cast(Kube, events))
        events.error = Forbidden("not allowed", status=403)
        await tell(recorder, "a")
        events.error = KubeUnreachable("no answer")
        for number in range(gateways_recorder.MAX_UNSENT + 10):
            await tell(recorder, "b", uid=f"gone-{number}")
        events.error = None
        await tell(recorder)
        assert (events.told, len(recorder._unsent)) == ([], gateways_recorder.MAX_UNSENT)

    asyncio.run(story())


def test_the_event_about_what_stays_in_kafka_is_written_even_if_the_api_server_was_away_for_a_moment() -> None:
    """The namespace is being deleted and takes no Events, so this one is about the namespace."""

    class Closing(Events):
        async def create(self, body: Manifest) -> Manifest:
            if body["involvedObject"]["kind"] != "Namespace":
                raise Forbidden("the namespace is being deleted", status=403)
            return await super().create(body)

    async def story() -> None:
        events = Closing()
        now = [0.0]
        recorder = Recorder(cast(Kube, events), lambda: now[0])
        events.error = KubeUnreachable("no answer")
        stays = Notice(type="Normal", reason="Retained", message="it stays", outlives_namespace=True)
        await recorder.emit(resource(), [stays])
        events.error, now[0] = None, gateways_recorder.AGAIN_SECONDS
        await recorder.emit(resource(), [])
        assert events.told == ["DelayedTopic shop/orders: it stays"]

    asyncio.run(story())
