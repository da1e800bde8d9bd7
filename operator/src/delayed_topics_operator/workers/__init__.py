"""The workers of a DelayedTopic, or those that the DelayedTopics of a connection share: one StatefulSet, and all that is made around it.

Who has workers, and how many, the folders of the two kinds decide. What workers do with records is in `delayed_topics_worker`.
"""
