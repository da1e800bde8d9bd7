"""Topics on brokers with a policy that refuses some settings, as managed services have it.

Kafka refuses the whole call, and says why only in words. These calls therefore try each setting by itself, leave out those that Kafka
refuses, and return their names.
https://kafka.apache.org/documentation/#brokerconfigs_create.topic.policy.class.name
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeGuard

from delayed_topics_kafka.errors import KafkaCallError, KafkaRefused, LeadersMissing, SettingsRefused
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_kafka.topics import TopicCalls

_CODES: Final = frozenset({"POLICY_VIOLATION", "INVALID_CONFIG"})


class RefusableCalls(TopicCalls):
    """As TopicCalls, but one refused setting does not prevent the others."""

    def create_topics(self, specs: Sequence[NewTopicSpec]) -> dict[str, TopicInfo | KafkaCallError]:
        """Creates topics, and returns when each topic that could be created is usable. Leaves out the settings that Kafka refuses."""
        outcomes = super().create_topics(specs)
        for spec in specs:
            if _is_about_settings(outcomes[spec.name]) and spec.config:
                outcomes[spec.name] = self._created_without(spec, outcomes[spec.name])
        return outcomes

    def alter_topic_configs(self, settings: Mapping[str, Mapping[str, str]]) -> dict[str, KafkaCallError | None]:
        """Sets these settings of each topic and leaves its others alone. The outcome SettingsRefused means that Kafka has refused some of
        them and accepted the others."""
        outcomes = super().alter_topic_configs(settings)
        for topic, outcome in outcomes.items():
            if _is_about_settings(outcome):
                outcomes[topic] = self._one_by_one(topic, settings[topic], outcome)
        return outcomes

    def _created_without(self, spec: NewTopicSpec, refusal: TopicInfo | KafkaCallError) -> TopicInfo | KafkaCallError:
        """Creates the topic with those settings that Kafka accepts each by itself. Returns the error if Kafka refuses the topic even
        without settings."""

        def answer(config: Mapping[str, str]) -> KafkaCallError | None:
            bare = replace(spec, config=config)
            return self._ask_for_topics([bare], self._deadline(), validate_only=True)[spec.name]

        if (other := answer({})) is not None:
            return _combined(refusal, other) if _is_about_settings(refusal) and _is_about_settings(other) else other
        accepted = {name: value for name, value in spec.config.items() if answer({name: value}) is None}
        made = super().create_topics([replace(spec, config=accepted)])[spec.name]
        left_out = tuple(sorted(spec.config.keys() - accepted.keys()))
        if isinstance(made, LeadersMissing):
            return LeadersMissing(str(made), made=replace(made.made, left_out=left_out))
        return replace(made, left_out=left_out) if isinstance(made, TopicInfo) else made

    def _one_by_one(self, topic: str, settings: Mapping[str, str], refusal: KafkaRefused) -> KafkaCallError | None:
        words_of: dict[str, str] = {}
        for name, value in settings.items():
            outcome = super().alter_topic_configs({topic: {name: value}})[topic]
            if _is_about_settings(outcome):
                words_of[name] = outcome.words
            elif outcome is not None:
                return outcome
        return SettingsRefused(str(refusal), code=refusal.code, words_of=words_of) if words_of else None


def _combined(refusal: KafkaRefused, without: KafkaRefused) -> KafkaRefused:
    """Combines Kafka's refusals of a topic with and without its settings, because either may name what has to be changed."""
    if refusal.words == without.words:
        return refusal
    message = f"{refusal}. It also refused the topic without its settings ({without.words})"
    return KafkaRefused(message, code=refusal.code, words=refusal.words)


def _is_about_settings(outcome: object) -> TypeGuard[KafkaRefused]:
    return isinstance(outcome, KafkaRefused) and outcome.code in _CODES
