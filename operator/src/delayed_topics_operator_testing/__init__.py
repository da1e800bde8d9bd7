"""For tests of the operator: simulations of Kafka and Kubernetes for plans, and the operator as a process on real ones. Not in the wheel.

Starting a broker or an API server belongs to `devcluster`, and what a single test expects belongs to that test.
"""
