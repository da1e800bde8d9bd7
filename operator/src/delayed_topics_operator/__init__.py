"""The operator: it creates the Kafka topics of each DelayedTopic, and the worker pods that move records between them.

Each pass observes the state, decides what to do without making calls or reading a clock, and then acts. kopf receives events and only wakes
queues. The operator reads and writes no record of a delayed topic. `delayed_topics_crds` defines the fields of resources.
"""
