"""The errors of this package. Each message says what to do.

DevclusterError            the command line prints its message without a traceback, and exits with code 1
├── PreconditionError      the machine lacks something that this project can't bring along
├── CommandFailedError     a program failed; the message has the end of its output
└── NotInTimeError         a condition did not become true in time
"""

import click

__all__ = ["CommandFailedError", "DevclusterError", "NotInTimeError", "PreconditionError"]


class DevclusterError(click.ClickException):
    """Base of all errors of this package."""


class PreconditionError(DevclusterError):
    """The machine lacks something; the message says what to do about it."""


class CommandFailedError(DevclusterError):
    """A program ended with a non-zero code."""


class NotInTimeError(DevclusterError):
    """A condition did not become true in time."""
