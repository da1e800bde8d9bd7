"""Progress messages on standard error, with the duration of each step. Standard output is for results."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["say", "step"]


def say(text: str) -> None:
    """Prints one line below the title of the current step."""
    click.echo(f"     {text}", err=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Prints the title of a step, and its duration when it is done or has failed."""
    click.echo(f"== {title}", err=True)
    started = time.monotonic()
    done = False
    try:
        yield
        done = True
    finally:
        say(f"{'done' if done else 'failed'} after {time.monotonic() - started:.1f} s")
