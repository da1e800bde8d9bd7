"""The controller of DelayedTopics: a pass observes Kafka and Kubernetes, makes a plan, and executes it.

`reconcile` makes all decisions, without calls and without a clock. The controller calls Kafka and Kubernetes only through `gateways`. Plans
are executed in `engine`, because their execution is the same for all kinds.
"""
