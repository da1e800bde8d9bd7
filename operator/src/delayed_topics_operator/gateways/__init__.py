"""The doors to Kubernetes and Kafka: nobody else calls either."""
