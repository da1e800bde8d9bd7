"""Helpers for tests of several members: users and rights on a broker, tokens, slow connections, records of a topic. Not in the wheel.

These helpers know nothing of delayed topics, which the helpers of the worker, the client and the operator create.
"""
