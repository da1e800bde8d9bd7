"""The audit on Spark. It reads a frozen window from Kafka and reports what became of every record, as a verdict, a page and a table.

Code that chooses the offsets of a window belongs to the operator, and the decisions of a worker belong to its engine.
"""
