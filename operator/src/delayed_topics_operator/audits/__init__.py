"""DelayedTopicAudit: freezes a window of offsets, runs the Job of the audit, and reports the verdict.

Only `delayed_topics_audit` counts and judges records. Schedules of audits belong to the DelayedTopic, in `delayed_topic`.
"""
