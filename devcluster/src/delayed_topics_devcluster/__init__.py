"""A real Kubernetes and a real Kafka on one machine."""
