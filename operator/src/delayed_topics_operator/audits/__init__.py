"""DelayedTopicAudit: freezes a window, runs the audit Job, and brings back its verdict."""
