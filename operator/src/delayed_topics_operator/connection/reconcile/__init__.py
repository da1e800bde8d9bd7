"""What a connection is for those who use it: usable or not, what its owner grants, and the workers that they share. Pure.

There is no clock, and nothing is called. Whether a DelayedTopic or an audit keeps to a grant is decided in the folder of that kind.
"""
