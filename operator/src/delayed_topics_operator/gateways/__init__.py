"""All calls to Kubernetes and Kafka. No other package of the operator makes any."""
