"""What all programs have to agree on, as pure functions and values: layout, names, headers, registry records, events and reasons.

Nothing that reads a clock, draws a random number or calls Kafka or Kubernetes belongs here.
"""
