"""Benchmarks of the relay on a real broker, side by side with what else a user would pick."""
