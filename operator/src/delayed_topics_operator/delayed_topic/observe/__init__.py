"""Gathers what a pass has to know from Kafka, the registry and Kubernetes, as values. These modules are the only readers.

They change nothing, and they do not judge what they find.
"""
