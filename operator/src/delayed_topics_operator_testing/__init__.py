"""Helpers for tests of the operator: simulations of Kafka and Kubernetes for plans, and the operator as a process on real ones. The wheel
does not contain them.

`devcluster` starts brokers and API servers. What a single test expects belongs in that test.
"""
