"""The workers of a DelayedTopic, or those that the DelayedTopics of a connection share: one StatefulSet and the objects around it.

The packages of the two kinds decide who has workers, and how many. The program that runs in a worker is `delayed_topics_worker`.
"""
