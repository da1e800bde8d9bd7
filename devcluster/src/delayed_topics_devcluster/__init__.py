"""A real Kubernetes and a real Kafka on one machine, the builds of images and releases, and the fixtures that start them for tests.

What is special to one member's tests does not belong here, so this package imports no other member.
"""
