"""Computes the objects that workers need, and the actions that bring the live objects there. Pure: no clock, and no calls.

The packages of the two kinds decide what the conditions of a resource say of its workers.
"""
