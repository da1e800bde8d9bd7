"""Faults on purpose: real brokers, real worker processes, and a judge that reads the topics with another client."""
