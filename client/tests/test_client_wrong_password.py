"""A password that Kafka refuses. The client library keeps trying, and a reader receives no records."""

from dataclasses import replace

import pytest
from delayed_topics import scan
from delayed_topics.scan import Range, Scanner
from delayed_topics_kafka.errors import NotAuthorized
from delayed_topics_kafka_testing.passwords import password_kafka

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_wrong_password_is_said_by_whoever_reads_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """`peek`, for example, reads records with a wrong password if the password changes after it has requested the offsets."""
    monkeypatch.setattr(scan, "SILENT_SECONDS", 5.0)
    said = r"reading orders\.delays \[2\] failed .*_AUTHENTICATION: .*correct the connection's credentials"
    with (
        password_kafka() as right,
        Scanner(replace(right, password="wrong"), lambda *_: None) as scanner,
        pytest.raises(NotAuthorized, match=said),
    ):
        scanner.read({("orders.delays", 2): Range(0, 1)}, lambda _: False)
