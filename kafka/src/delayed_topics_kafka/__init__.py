"""Every call to Kafka: connections, registry, batched admin calls, broker clock."""
