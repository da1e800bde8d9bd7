"""Values that tests of several members need: attempts, headers of copies, the registry records of a served topic, and Kafka's partitioner.
Not in the wheel.

What starts a process or talks to a broker does not belong here, but to `delayed_topics_kafka_testing` or to its member's own helpers.
"""
