"""All calls to Kafka from Python that more than one program makes: connections, admin calls, registry, events and offsets.

What a call is for is decided by its caller, and the records that workers move go through the engine.
"""
