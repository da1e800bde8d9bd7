"""Decides about an audit: whether it may run, what runs it, how that ended, and what its status says. Pure.

Nothing here makes a call or reads a clock. The package above freezes windows and lets audits take turns.
"""
