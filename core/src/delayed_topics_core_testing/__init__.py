"""Values that tests of several members need: attempts, headers of copies, the registry records of a served topic, and Kafka's partitioner.
The wheel does not contain this package.

Helpers that start a process or talk to a broker belong in `delayed_topics_kafka_testing`, or in the test helpers of their member.
"""
