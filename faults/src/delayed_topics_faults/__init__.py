"""Injects faults many times into real brokers and worker processes, and judges the topics with another client than the workers'.

Speed is measured in `bench`. What a single test can show is tested in its own member.
"""
