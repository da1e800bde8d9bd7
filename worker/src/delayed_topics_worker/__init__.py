"""The worker around its engine: it decides where partitions begin, follows the registry, answers control requests, and publishes alarms,
events and metrics.

The engine, in Rust, decides what happens to a single record. The operator creates the topics.
"""
