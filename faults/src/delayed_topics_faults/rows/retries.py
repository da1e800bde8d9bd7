"""D2: a consumer that fails records, while it or the worker dies."""

import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Final

from delayed_topics_devcluster.errors import NotInTimeError
from delayed_topics_devcluster.waiting import wait_until

from delayed_topics_faults.copies import Copy
from delayed_topics_faults.judge import Crash, Seen, Terms, Verdict, beyond_crashes
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import Testbed, now_ms

CAP: Final = 3
RECORDS: Final = 60
LAST_SECONDS: Final = 180.0
STRAY_SECONDS: Final = 1.5
"""One and a half times the longest delay: a retry too many would have come by then."""


class Failing(Row):
    name = "D2"
    fault = "a consumer fails cap - 1, cap and cap + 1 times; SIGKILL of the consumer or the worker in between"

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1), retry_cap=CAP)
        self._worker = testbed.start()
        self._seen: list[Seen] = []
        self._trial = 0
        self._consumer = self._consume(testbed)

    def _consume(self, testbed: Testbed) -> "subprocess.Popen[bytes]":
        servers, topic = testbed.harness.connection.bootstrap_servers, testbed.orders.names.front
        return testbed.run("delayed_topics_faults.failing", servers, topic)

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        self._trial += 1
        failures: dict[str, int] = {}
        for n in range(RECORDS):
            name, fails = f"{self._trial}-{n}", rng.choice((0, CAP - 1, CAP, CAP + 1))
            failures[name] = fails
            testbed.orders.produce(
                b"%d" % n,
                headers=[("x-fails", b"%d" % fails), ("dt-id", name.encode())],
                partition=rng.randrange(2),
            )
        testbed.orders.flush()
        time.sleep(rng.uniform(0, 2.5))
        kills_worker = rng.random() < 0.3
        if kills_worker:
            self._worker.kill()
            self._worker = testbed.start(ready=False)
        else:
            self._consumer.kill()
            self._consumer.wait(180)
            self._consumer = self._consume(testbed)
        killed = "worker" if kills_worker else "consumer"
        crashes = (Crash(at_ms=now_ms()),) if kills_worker else ()
        return Trial(injected=f"SIGKILL of the {killed}", terms={"crashes": crashes}, context=failures)

    def finish(self, testbed: Testbed, trial: Trial) -> tuple[Seen, list[str]]:
        """Waits for the last attempt of each record, and then long enough to see a retry too many."""
        seen = testbed.read()

        def unfinished() -> list[str]:
            nonlocal seen
            seen = seen.followed_by(testbed.read())
            last = _attempts(seen.ready)
            dead = {copy.own.get("dt-id") for copy in seen.dead}
            return [n for n, k in trial.context.items() if min(k, CAP) not in last[n] or (k > CAP and n not in dead)]

        try:
            wait_until(
                lambda: not unfinished(),
                what="all last attempts",
                timeout_seconds=LAST_SECONDS,
                poll_seconds=0.5,
            )
        except NotInTimeError:
            return seen, [f"{name}, which fails {trial.context[name]} times" for name in unfinished()]
        time.sleep(STRAY_SECONDS)
        return seen.followed_by(testbed.read()), []

    def judge(self, seen: Seen, terms: Terms, trial: Trial) -> Verdict:
        """Judges that each record has one attempt more than failures, up to the retry cap, and becomes a dead letter beyond it.

        A record that a killed worker released twice may fail twice, and its retries may then come twice at any later time.
        """
        verdict = Verdict(records=len(trial.context), dead_lettered=len(seen.dead))
        ready = _attempts(seen.ready)
        dead = _attempts(seen.dead)
        may_repeat = bool(terms.crashes and terms.most_doubled)
        for name, fails in trial.context.items():
            wanted = set(range(min(fails, CAP) + 1))
            if set(ready[name]) != wanted or bool(dead[name]) != (fails > CAP):
                verdict.lost += 1
                verdict.fail("L", f"{name} fails {fails} times: attempts {sorted(ready[name])}, dead {len(dead[name])}")
            for copies in [*ready[name].values(), *dead[name].values()]:
                verdict.doubled += len(copies) - 1
                if len(copies) > 1 and not may_repeat:
                    verdict.doubled_beyond += 1
                    attempt = copies[0].own.get("dt-attempt")
                    verdict.fail(
                        "D", f"{name} came {len(copies)} times as attempt {attempt}, which no crash may repeat"
                    )
            first = ready[name].get(0, ())
            if may_repeat and len(first) > 1 and beyond_crashes("", [min(copy.at_ms for copy in first)], terms):
                verdict.doubled_beyond += 1
                verdict.fail(
                    "D", f"{name} came {len(first)} times, and first so long before the crash that it was committed"
                )
        for copy in seen.dead:
            if copy.own.get("dt-reason") != "RetryCapExceeded":
                verdict.fail("L", f"a dead letter for {copy.own.get('dt-reason')}: {copy.own.get('dt-error')}")
        return verdict


def _attempts(copies: Sequence[Copy]) -> dict[str, dict[int, list[Copy]]]:
    found: dict[str, dict[int, list[Copy]]] = defaultdict(dict)
    for copy in copies:
        found[copy.own.get("dt-id", "")].setdefault(int(copy.own.get("dt-attempt", "-1")), []).append(copy)
    return found
