"""What the user stories are told with: kubectl, plain Kafka clients, and a checker that counts."""
