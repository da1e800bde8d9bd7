"""worker.json: only settings whose change restarts pods. Layout, retry cap, pause, compression and group come live from the registry."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args

from delayed_topics_core.errors import IllegalTopicName
from delayed_topics_core.names import check_topic_name

from delayed_topics_worker.errors import ConfigInvalid

Protocol = Literal["classic", "consumer"]
ASSIGNORS: Final[Mapping[Protocol, Mapping[str, str]]] = {
    # With both in the list, members can change from one to the other while the group runs, and from both to `consumer` and back.
    "classic": {"Range": "range,roundrobin", "RoundRobin": "roundrobin,range", "Sticky": "cooperative-sticky"},
    "consumer": {"Uniform": "uniform", "Range": "range"},
}
"""By protocol, the setting of the Kafka client for each assignor as the resource names it. The first assignor is the default."""
Guarantee = Literal["AtLeastOnce", "ExactlyOnce"]

MIN_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """The settings of a worker.

    `topics`: front topics; empty: all topics with `group` in their layouts, as they come and go. `group`: the consumer group; a topic with
    another group in its layout is not served; empty: the group of the layouts. `assignor`: a name in ASSIGNORS; empty: the first.
    `window_bytes`: memory for records that are held; a few more batches may come in before the limit takes effect. `commit_interval_ms`:
    how long copies stay uncommitted. `renew_commits_seconds`: the interval at which a commit is renewed if a partition has nothing new,
    because Kafka removes commits that are older than `offsets.retention.minutes`, a day in old versions.
    """

    topics: tuple[str, ...] = ()
    group: str = ""
    http_port: int = 8080
    window_bytes: int = 64 << 20
    protocol: Protocol = "classic"
    assignor: str = ""
    guarantee: Guarantee = "AtLeastOnce"
    commit_interval_ms: int = 100
    renew_commits_seconds: int = 21_600

    def __post_init__(self) -> None:
        for field in fields(self):
            value, wanted = getattr(self, field.name), type(field.default)
            if type(value) is not wanted:
                raise ConfigInvalid(f"{field.name} must be of type {wanted.__name__}, but it is {value!r}")
        if not all(isinstance(topic, str) for topic in self.topics):
            raise ConfigInvalid(f"topics must be strings, but they are {self.topics!r}")
        if not self.topics and not self.group:
            raise ConfigInvalid("topics must name at least one front topic if group is not set")
        if len(set(self.topics)) < len(self.topics):
            raise ConfigInvalid("topics must name each front topic only once")
        for topic in self.topics:
            try:
                check_topic_name(topic)
            except IllegalTopicName as e:
                raise ConfigInvalid(str(e)) from e
        if self.protocol not in get_args(Protocol):
            raise ConfigInvalid(f"protocol must be {' or '.join(get_args(Protocol))}, but it is {self.protocol!r}")
        assignors = ASSIGNORS[self.protocol]
        if self.assignor not in ("", *assignors):
            raise ConfigInvalid(
                f"assignor must be {' or '.join(assignors)} with protocol {self.protocol}, but it is {self.assignor!r}"
            )
        if self.guarantee not in get_args(Guarantee):
            raise ConfigInvalid(f"guarantee must be {' or '.join(get_args(Guarantee))}, but it is {self.guarantee!r}")
        if self.guarantee == "ExactlyOnce" and len(self.topics) != 1:
            raise ConfigInvalid(
                "topics must name only one front topic with guarantee ExactlyOnce, because all topics of a worker share one transaction"
            )
        _check_range("http_port", self.http_port, 1, 65_535)
        _check_range("window_bytes", self.window_bytes, MIN_WINDOW_BYTES, 1 << 40)
        # at most half of what the fence allows between commits
        _check_range("commit_interval_ms", self.commit_interval_ms, 1, 500)
        _check_range("renew_commits_seconds", self.renew_commits_seconds, 1, 86_400)

    @property
    def client_assignor(self) -> str:
        """The assignor as the Kafka client names it in its settings."""
        assignors = ASSIGNORS[self.protocol]
        return assignors[self.assignor or next(iter(assignors))]

    @classmethod
    def read(cls, path: Path) -> "WorkerConfig":
        """Raises ConfigInvalid."""
        try:
            body = json.loads(path.read_text())
        except OSError as e:
            raise ConfigInvalid(f"{path} can't be read: {e.strerror}") from e
        except ValueError as e:
            raise ConfigInvalid(f"{path} must be JSON: {e}") from e
        try:
            given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in {**body}.items()}
            return cls(**given)
        except (TypeError, ConfigInvalid) as e:
            raise ConfigInvalid(f"{path}: {e}") from e


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigInvalid(f"{name} must be from {least} to {most}, but it is {value}")
