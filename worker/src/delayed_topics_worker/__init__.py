"""The worker around its engine: it takes partitions, follows the registry, answers requests, and tells alarms, events and metrics.

What happens to a single record is decided by the engine in Rust, and topics are made by the operator.
"""
