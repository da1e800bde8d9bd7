"""The operator: it makes of each DelayedTopic its Kafka topics and the pods that move records between them.

observe → reconcile (pure) → execute. kopf receives events and wakes; it decides nothing.
"""
