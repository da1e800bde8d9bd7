"""What all controllers of an operator share."""

from dataclasses import dataclass

from delayed_topics_operator.engine.execute import Executor
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.engine.tenants import Tenants
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.recorder import Recorder


@dataclass(frozen=True, kw_only=True)
class ControllerContext:
    """One for each operator. `cluster`: the UID of the kube-system namespace."""

    settings: Settings
    kube: Kube
    cluster: str
    store: Store
    recorder: Recorder
    executor: Executor
    tenants: Tenants
