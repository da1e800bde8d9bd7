"""Every call to Kafka: connections, registry, events, batched admin calls, offsets."""
