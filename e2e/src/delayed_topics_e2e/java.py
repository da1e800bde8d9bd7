"""Kafka's own Java console tools, used as from a shell: one line a record, `header:value,header:value<tab>key<tab>value`.

The producer reads this format with `parse.headers` and `parse.key`, and the consumer prints it with `print.headers` and
`print.key`, so a consumed line can be edited and produced again.
"""

from collections.abc import Iterable

from delayed_topics_devcluster.kafka import java_tool

__all__ = ["console_consume", "console_produce"]


def console_produce(bootstrap: str, topic: str, lines: Iterable[str]) -> None:
    """Returns when every line is acknowledged by all in-sync replicas."""
    java_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--command-property", "acks=all"),
        # With its defaults of 1.5 s and three retries, the tool gives up on a busy machine, with a log line and exit code 0.
        *("--request-timeout-ms", "30000", "--message-send-max-retries", "100"),
        *("--reader-property", "parse.headers=true", "--reader-property", "parse.key=true"),
        text_in="".join(line + "\n" for line in lines),
    )


def console_consume(bootstrap: str, topic: str, *, group: str, count: int, timeout_seconds: float) -> list[str]:
    """Returns the next `count` records for the group; fewer if no record arrives for `timeout_seconds`."""
    printed = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", str(int(timeout_seconds * 1000))),
        *("--formatter-property", "print.headers=true", "--formatter-property", "print.key=true"),
    )
    return printed.splitlines()
