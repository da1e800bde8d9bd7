"""DelayedTopicAudit: it freezes a window, runs the audit's Job, and brings back its verdict.

Records are counted and judged in `delayed_topics_audit` only, and schedules of audits belong to the DelayedTopic, in `delayed_topic`.
"""
