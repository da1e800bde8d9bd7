"""Values that all parts of the operator pass on: what is to be done, what is said of it, what Kubernetes says, and what follows from that.

Nothing here makes a call or has a clock, and nothing is about one kind of resource only: that belongs to the folder of the kind.
"""
