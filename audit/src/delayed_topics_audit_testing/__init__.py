"""Windows for tests of the audit, made on Spark or in Kafka, whole or with mutations, Spark alone, and its benchmarks. Not in the wheel.

A single assertion belongs to the test that makes it, and nothing of this package runs in an audit's Job.
"""
