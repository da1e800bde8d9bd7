"""Windows for tests of the audit, made in Spark or in Kafka, with or without mutations; a bare Spark; and benchmarks. Not in the wheel.

Helpers that only one test needs belong to that test, and an audit's Job uses nothing of this package.
"""
