"""Faults on purpose, played many times on real brokers and worker processes, and the judge that reads the topics with another client.

How fast something is belongs to `bench`, and what a single test can show belongs to the tests of its member.
"""
