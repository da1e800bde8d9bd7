"""Reads what a pass has to know from Kafka and the registry, and returns it as values. The objects in Kubernetes are read in
`workers.observe`.

These modules change nothing, and they do not judge what they find.
"""
