"""Saying what is being done and how long it takes, on standard error: standard output is for results."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["say", "step"]


def say(text: str) -> None:
    """One line below the step that is under way."""
    click.echo(f"     {text}", err=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Announce a step, and tell its seconds when it is done (or has failed)."""
    click.echo(f"== {title}", err=True)
    started = time.monotonic()
    done = False
    try:
        yield
        done = True
    finally:
        say(f"{'done' if done else 'failed'} after {time.monotonic() - started:.1f} s")
