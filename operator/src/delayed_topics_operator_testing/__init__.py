"""For tests of the pure part: a simulation of Kafka and Kubernetes. Not in the wheel."""
