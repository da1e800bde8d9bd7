"""Gathers what a pass has to know: the only readers."""
