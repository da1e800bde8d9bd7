"""The reason and the status of the condition for each verdict of an audit."""

from typing import Final, Literal

from delayed_topics_core.reasons import Reason
from delayed_topics_crds.common import Verdict

REASONS: Final[dict[Verdict, Reason]] = {
    "Verified": Reason.EVERY_RECORD_ACCOUNTED,
    "Violated": Reason.PROMISE_BROKEN,
    "Unknown": Reason.CANNOT_SEE_EVERYTHING,
}
TRUTH: Final[dict[Verdict, Literal["True", "False", "Unknown"]]] = {
    "Verified": "True",
    "Violated": "False",
    "Unknown": "Unknown",
}
