"""How workers are to be, and by which actions those that there are become so. Pure: there is no clock, and nothing is called.

What the conditions of a resource say of its workers belongs to its kind.
"""
