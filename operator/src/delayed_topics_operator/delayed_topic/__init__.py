"""DelayedTopic: a pass observes Kafka and Kubernetes, reconciles without a call or a clock, and executes the plan.

All that is decided is in `reconcile`, and a controller makes no call that a gateway does not offer. How plans are executed is in `engine`,
since it is the same for all kinds.
"""
