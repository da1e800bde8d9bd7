"""ClusterKafkaConnection and KafkaConnection: can Kafka be reached, and who may have what by it? Holds the links to Kafka that others use.

The other kinds ask here for the connections that they name. Of them nothing is known here but what uses a connection.
"""
