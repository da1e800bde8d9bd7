"""What the controllers of all kinds run on: the queue, what the API server told of last, who may act, and the execution of plans.

It knows of no controller, and decides about no resource. What it calls is in `gateways`.
"""
