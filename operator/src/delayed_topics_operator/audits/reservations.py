"""The executors that audits take from the quota of their namespace, from before an audit begins until nothing of it runs any more."""

from collections import defaultdict

from delayed_topics_crds import QuotaUsed

from delayed_topics_operator.connection.usage import Usage, Use, use_of_audit
from delayed_topics_operator.errors import KubeRefused
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest


class Reservations:
    """Belongs to one event loop."""

    def __init__(self, kube: Kube, usage: Usage) -> None:
        self._kube = kube
        self._usage = usage
        self._runners = defaultdict[Key, dict[Use, Manifest | None]](dict)
        """By key of an audit, for each audit that had this key: its Job or SparkApplication, or None before that was created."""

    def reserve(self, audit: Manifest, connection: Key, executors: int) -> None:
        use = use_of_audit(audit)
        self._runners[_key(audit)].setdefault(use, None)
        self._usage.record(use, connection, QuotaUsed(executors=executors))

    def runs(self, audit: Manifest, runner: Manifest) -> None:
        self._runners[_key(audit)][use_of_audit(audit)] = runner

    def release(self, audit: Manifest) -> None:
        """Releases the executors of an audit that can't begin, or has its verdict."""
        use = use_of_audit(audit)
        self._runners[_key(audit)].pop(use, None)
        self._usage.forget(use.resource)

    async def release_former(self, key: Key, audit: Manifest | None) -> bool:
        """Releases the executors of former audits with this key. `audit`: the present one. Returns whether nothing is reserved any more: if
        someone removed the finalizer of an audit, it runs until the operator removes its Job. Raises KubeUnreachable."""
        present, runners = use_of_audit(audit) if audit is not None else None, self._runners[key]
        for use, runner in list(runners.items()):
            if use != present and not await self._is_there(runner):
                del runners[use]
                self._usage.forget(use.resource)
        if not runners:
            del self._runners[key]
        return not runners

    async def _is_there(self, runner: Manifest | None) -> bool:
        if runner is None:
            return False
        meta = runner["metadata"]
        try:
            return await self._kube.find(runner["kind"], meta["namespace"], meta["name"]) is not None
        except KubeRefused:
            return False  # the namespace no longer admits the operator, so nothing in it belongs to the platform


def _key(audit: Manifest) -> Key:
    return Key("DelayedTopicAudit", audit["metadata"]["namespace"], audit["metadata"]["name"])
