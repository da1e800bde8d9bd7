"""The context of controllers in tests that start no operator."""

from typing import Any

from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.execute import Executor
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.engine.tenants import Tenants
from delayed_topics_operator.gateways.recorder import Recorder

from delayed_topics_operator_testing.simulation import CLUSTER


def context(kube: Any = None, store: Store | None = None, recorder: Any = None, **settings: Any) -> ControllerContext:
    """`kube`, `recorder`: stand-ins that have the calls that the test makes."""
    images = {"worker_image": "w", "audit_image": "a"}
    made = Settings(**{"namespace": "system", "audit_namespace": "audits", **images, **settings})
    store, recorder = store or Store(), recorder or Recorder(kube)
    return ControllerContext(
        settings=made,
        kube=kube,
        cluster=CLUSTER,
        store=store,
        recorder=recorder,
        executor=Executor(kube, store, recorder, rolling_at_once=made.rolling_at_once),
        tenants=Tenants(made, store),
    )
