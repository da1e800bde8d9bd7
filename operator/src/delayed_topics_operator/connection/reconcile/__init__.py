"""The state of a connection for its users: whether it is usable, what its owner grants, and the workers that they share. Pure.

Nothing here makes a call or reads a clock. The folders of DelayedTopics and audits decide whether a resource keeps to a grant.
"""
