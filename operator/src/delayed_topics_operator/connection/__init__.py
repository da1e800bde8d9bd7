"""ClusterKafkaConnection and KafkaConnection: whether Kafka can be reached, and who may use it. Holds the links to Kafka that others use.

The controllers of the other kinds look up connections here. This package knows their resources only as users of a connection.
"""
