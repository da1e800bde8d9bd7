"""Pure functions and values on which all programs must agree: layout, names, headers, registry records, events and reasons.

Code that reads a clock, draws a random number or calls Kafka or Kubernetes does not belong here.
"""
