"""The operator: it makes of each DelayedTopic its Kafka topics and the pods that move records between them.

A pass observes, reconciles without a call or a clock, and executes. kopf receives events and wakes; it decides nothing.
No record of a delayed topic is read or written here, and what the fields of a resource may be belongs to `delayed_topics_crds`.
"""
