"""All calls to Kubernetes and to Kafka, with their limits, their retries and their errors. No other package of the operator makes any.

A gateway does what it is told: whether a call should be made is decided elsewhere.
"""
