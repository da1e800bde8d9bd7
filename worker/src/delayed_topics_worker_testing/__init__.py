"""Runs real worker processes on a real broker, without an operator, for tests and measurements. The package is not in the wheel.

It does what the operator does only as far as workers can see it, and does not judge whether the workers keep their promises.
"""
