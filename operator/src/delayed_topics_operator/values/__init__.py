"""Values that all parts of the operator share: plans, conditions, Events, and what the objects of Kubernetes mean.

Nothing here makes a call or reads a clock. Code for a single kind of resource belongs in the folder of that kind.
"""
