"""Benchmarks of workers, of the operator and of comparable systems: loads, measurements, results, tables and plots.

The package does not decide whether a promise holds. Tests and `faults` do that.
"""
