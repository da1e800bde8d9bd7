"""All calls to Kubernetes and to Kafka, with their limits, their retries and their errors. No other package of the operator makes any.

A gateway only makes calls: other packages decide whether a call should be made.
"""
