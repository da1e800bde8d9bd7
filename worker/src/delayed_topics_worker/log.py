"""Log lines on standard error, with time, level, logger and message."""

import logging
import sys
import time
from collections.abc import Callable

kafka_log = logging.getLogger("kafka-client")

REPEATED_AFTER_SECONDS = 30.0
SYSLOG_LEVELS = {
    0: logging.ERROR,
    1: logging.ERROR,
    2: logging.ERROR,
    3: logging.ERROR,
    4: logging.WARNING,
    5: logging.INFO,
    6: logging.INFO,
    7: logging.DEBUG,
}


class RepeatFilter(logging.Filter):
    """Lets each kind of message pass at most twice a minute. The Kafka client logs ten times a second that a broker is away."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._logged_at: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.levelno, record.args[0] if isinstance(record.args, tuple) and record.args else record.msg)
        now = self._seconds()
        if now - self._logged_at.get(kind, float("-inf")) < REPEATED_AFTER_SECONDS:
            return False
        self._logged_at[kind] = now
        return True


def set_up() -> None:
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    kafka_log.addFilter(RepeatFilter())
