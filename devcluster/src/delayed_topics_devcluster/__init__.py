"""A real Kubernetes and a real Kafka on one machine, the builds of images and releases, and the fixtures that start them for tests.

This package imports no other member: helpers for the tests of one member are in that member's folder.
"""
