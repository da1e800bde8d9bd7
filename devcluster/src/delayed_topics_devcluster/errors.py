"""What can go wrong, said so that one line tells what to do.

DevclusterError            shown as one line by the command line, exit code 1
├── PreconditionError      the machine lacks something that this project can't bring along
├── CommandFailedError     a program that was called failed; holds the end of what it printed
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
    """A condition that was waited for did not come true."""
