"""The rows of faults: each is a class that says what is done to the system, and what still has to be true.

The package above starts the system, counts and judges, which is the same for all rows.
"""

from delayed_topics_faults.row import Row
from delayed_topics_faults.rows.brokers import Away, BrokerDies
from delayed_topics_faults.rows.cancelling import Cancelled, Rescheduled
from delayed_topics_faults.rows.clocks import Burst, Disagreeing, Jumps, Overload
from delayed_topics_faults.rows.dead_letters import Large, NoDeadLetterTopic
from delayed_topics_faults.rows.fuzz import Fuzz
from delayed_topics_faults.rows.groups import Rebalanced, Switched
from delayed_topics_faults.rows.memory import OutOfMemory
from delayed_topics_faults.rows.neighbours import OneDeafTarget, OpenTransaction
from delayed_topics_faults.rows.network import BadNetwork
from delayed_topics_faults.rows.offsets import OffsetsGone, RecordsRemoved, TopicMadeAgain
from delayed_topics_faults.rows.requests import SlowRequests
from delayed_topics_faults.rows.retries import Failing
from delayed_topics_faults.rows.targets import SentAlone, TargetTrouble
from delayed_topics_faults.rows.windows import EndsInMarks, FullBitmap, ManyPartitions
from delayed_topics_faults.rows.workers import DueTimes, Killed, Rolled, Zombie

ROWS: dict[str, type[Row]] = {
    row.name: row
    for row in (
        *(Killed, Rolled, Zombie, OutOfMemory, OpenTransaction, FullBitmap, DueTimes, Cancelled, Rescheduled),
        *(BrokerDies, BadNetwork, TargetTrouble, RecordsRemoved, TopicMadeAgain, Disagreeing, OffsetsGone, Away),
        *(OneDeafTarget, SentAlone, EndsInMarks, ManyPartitions, SlowRequests),
        *(Rebalanced, Switched),
        *(Jumps, Burst, Overload, Fuzz),
        *(NoDeadLetterTopic, Failing, Large),
    )
}
