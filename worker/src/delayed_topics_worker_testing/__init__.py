"""Real worker processes on a real broker, without an operator: for tests and measurements, not part of the wheel."""
