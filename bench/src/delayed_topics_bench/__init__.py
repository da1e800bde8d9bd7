"""The benchmarks of workers, of the operator and of other systems beside them: loads, measures, results, tables and pictures.

Whether a promise holds is not decided here: tests and `faults` do that.
"""
