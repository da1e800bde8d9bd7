"""The calls to Kafka from Python that more than one program makes: connections, admin calls, registry, events and offsets.

What does not belong here: decisions, which the callers make, and the records that workers move, which go through the engine.
"""
