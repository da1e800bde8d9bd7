"""What the user stories on a cluster are told with: kubectl, plain Kafka clients, and a checker that counts records.

A story looks at the system as its users do, so nothing that calls into the operator or a worker belongs here.
"""
