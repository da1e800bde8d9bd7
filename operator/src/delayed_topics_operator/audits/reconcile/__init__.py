"""Decides about an audit: whether it may run, what runs it, how that ended, and what its status says. Pure.

There is no clock, and nothing is called: windows are frozen, and audits take turns, in the package above.
"""
