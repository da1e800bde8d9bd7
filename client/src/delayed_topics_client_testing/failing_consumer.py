"""A consumer as a process of its own, which can be killed: `python -m delayed_topics_client_testing.failing_consumer …`.

Every value that ends in 0 fails, and every value that ends in 5 is rejected. With `--die-before STEP`, the process kills itself
right before that step of its first transaction, after the copies were acknowledged. `--by SIGINT` interrupts it instead, as Ctrl-C does.
"""

import faulthandler
import os
import signal
import time
from typing import Any

import click
from confluent_kafka import Producer
from delayed_topics import DelayedTopic, Record, Reject, transacting

WORK_SECONDS = 0.005
"""How long a record takes, so that a kill finds settled and unsettled outcomes."""
HANGS_SECONDS = 200
"""After this time, the process prints its stack traces. Tests wait longer for it."""


class DyingProducer(Producer):
    """Sends the process a signal before `step`, once."""

    step = ""
    number = signal.SIGKILL

    def send_offsets_to_transaction(self, *args: Any) -> None:
        self._die_before("offsets")
        super().send_offsets_to_transaction(*args)

    def commit_transaction(self, *args: Any) -> None:
        self._die_before("commit")
        super().commit_transaction(*args)
        self._die_before("more")

    def _die_before(self, step: str) -> None:
        if step == DyingProducer.step:
            DyingProducer.step = ""
            self.flush(120)
            os.kill(os.getpid(), self.number)


def judge(record: Record) -> None:
    value = record.value or b""
    print(value.decode(), flush=True)
    time.sleep(WORK_SECONDS)
    if value.endswith(b"0"):
        raise RuntimeError("not now")
    if value.endswith(b"5"):
        raise Reject("never")


@click.command()
@click.argument("bootstrap")
@click.argument("topic")
@click.option("--member")
@click.option("--session-ms", default=6000)
@click.option("--die-before", type=click.Choice(["offsets", "commit", "more"]))
@click.option("--by", type=click.Choice(["SIGKILL", "SIGINT"]), default="SIGKILL")
def main(bootstrap: str, topic: str, member: str | None, session_ms: int, die_before: str | None, by: str) -> None:
    faulthandler.dump_traceback_later(HANGS_SECONDS)
    if die_before is not None:
        DyingProducer.step, DyingProducer.number = die_before, signal.Signals[by]
        module: Any = transacting
        module.Producer = DyingProducer
    session = {"session.timeout.ms": session_ms, "heartbeat.interval.ms": 1000}
    with DelayedTopic.connect({"bootstrap.servers": bootstrap, **session}, topic) as delayed:
        consumer = delayed.consumer("shipping", judge, member=member)
        if by == "SIGINT":
            consumer.run()  # without a signal handler, so that SIGINT raises KeyboardInterrupt
        else:
            consumer.run_until_signal()


if __name__ == "__main__":
    main()
