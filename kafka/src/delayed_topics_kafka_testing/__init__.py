"""What tests of several members do to a broker: users and rights, tokens, slow wires, and reading what a topic holds. Not in the wheel.

Delayed topics are not known here: the helpers of the worker, the client and the operator make them.
"""
