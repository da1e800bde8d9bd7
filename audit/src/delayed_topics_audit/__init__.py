"""The audit: an account for every record, on Spark."""
