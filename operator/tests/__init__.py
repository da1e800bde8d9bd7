"""This folder is a package so that pytest imports its modules as `tests.…`.

By their path they would be `operator.tests.…`, which would shadow Python's module `operator`.
"""
