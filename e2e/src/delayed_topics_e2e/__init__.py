"""Helpers for the user stories on a cluster: kubectl, plain Kafka clients, and a checker that counts records.

A story sees the system as its users do, so no code here calls into the operator or a worker.
"""
