"""A delayed topic of any size made on Spark, whole or mutated with: for tests of the auditor and for its benchmark."""
