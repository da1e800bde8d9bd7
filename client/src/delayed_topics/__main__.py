"""`python -m delayed_topics`: the command line."""

from delayed_topics.cli import main

main(prog_name="delayed-topics")
