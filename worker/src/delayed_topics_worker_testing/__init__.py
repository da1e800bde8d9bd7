"""Real worker processes on a real broker, without an operator: for tests and measurements. Not in the wheel.

It stands in for the operator only as far as workers can see, and judges nothing by itself.
"""
