"""A consumer that fails each record as many times as the header `x-fails` says: `python -m delayed_topics_faults.failing …`."""

import sys

from delayed_topics import DelayedTopic, Record

GROUP = "failing"
SESSION = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}


def handle(record: Record) -> None:
    fails = int(dict(record.headers)["x-fails"] or b"0")
    if record.attempt < fails:
        raise RuntimeError(f"failure {record.attempt + 1} of {fails}")


def main() -> None:
    bootstrap, topic = sys.argv[1:]
    with DelayedTopic.connect({"bootstrap.servers": bootstrap, **SESSION}, topic) as delayed:
        delayed.consume(GROUP, handle, member="failing-0")


if __name__ == "__main__":
    main()
