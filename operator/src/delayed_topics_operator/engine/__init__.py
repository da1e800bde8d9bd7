"""What all controllers run on: the work queue, the store of objects, the watches, the lease, and the execution of plans.

Nothing here depends on a controller or decides about a resource. All calls go through `gateways`.
"""
