"""The Job of an audit with executors has the rights that Spark needs, and no others.

Spark is real, and so is the Job that the operator makes; the pods stay pending, since there are no nodes.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from delayed_topics_devcluster.audit_log import Right, missed
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.paths import REPOSITORY
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.needs import DRIVER, Act, audit, audit_children
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.rights import Grant, without

pytestmark = [pytest.mark.api, pytest.mark.slow, pytest.mark.spark]

ACCOUNT = "delayed-topics-audit-driver"
USER = f"system:serviceaccount:{AUDIT_NAMESPACE}:{ACCOUNT}"


@pytest.fixture(scope="session")
def jars() -> str:
    made = subprocess.run(
        ["make", "--silent", "spark-jars"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return made.stdout.strip().splitlines()[-1]


class Job:
    """The Job of an audit with one executor. No node runs its pod; its Spark runs as a process."""

    def __init__(self, harness: OperatorHarness, jars: str, folder: Path) -> None:
        self.harness = harness
        self._jars = jars
        self._settings = folder / "settings.json"
        self._log = folder / "spark.log"
        self._process: subprocess.Popen[bytes] | None = None
        allowed = {"namespaceSelector": {}, "topicPrefixes": [""], "audits": {"maxExecutors": 1}}
        harness.api.apply(harness.cluster_connection(allow=[allowed]))
        harness.apply()
        asked = audit(harness, harness.topic)
        asked["spec"]["spark"] = {"executors": 1, "memory": "512m"}
        harness.api.apply(asked)
        harness.wait(lambda: bool(self.pods("batch.kubernetes.io/job-name")), "the Job has a pod")
        self._said = self._as_the_job_says(folder)

    def _as_the_job_says(self, folder: Path) -> dict[str, str]:
        (pod,) = self.pods("batch.kubernetes.io/job-name")
        (container,) = pod["spec"]["containers"]
        settings = dict(re.findall(r"--conf=(\S+?)=(.*)", "\n".join(container["args"])))
        (window,) = audit_children(self.harness, "ConfigMap", self.harness.topic)
        (template := folder / "executor.json").write_text(window["data"]["executor.json"])
        server = self.harness.api.server
        kubeconfig = server.kubeconfig_of(AUDIT_NAMESPACE, ACCOUNT).read_text()
        (token := folder / "token").write_text(re.findall(r"token: ([^}]+)", kubeconfig)[0])
        (certificate,) = re.findall(r"certificate-authority: ([^}]+)", kubeconfig)
        self.master = "k8s://" + re.findall(r'server: "(.+?)"', kubeconfig)[0]
        return settings | {
            "spark.kubernetes.executor.podTemplateFile": str(template),
            "spark.kubernetes.driver.pod.name": pod["metadata"]["name"],
            "spark.driver.host": "127.0.0.1",
            # a pod has these files mounted
            "spark.kubernetes.authenticate.oauthTokenFile": str(token),
            "spark.kubernetes.authenticate.caCertFile": certificate,
            # Spark would wait for executors for half a minute
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
        }

    def pods(self, label: str) -> list[Manifest]:
        """Returns the pods of this audit that have this label."""
        found = audit_children(self.harness, "Pod", self.harness.topic)
        return [pod for pod in found if label in pod["metadata"]["labels"]]

    def executors(self) -> list[Manifest]:
        return [pod for pod in self.pods("spark-exec-id") if "deletionTimestamp" not in pod["metadata"]]

    def start(self, **settings: str) -> None:
        """Starts Spark after all executors of the former one are gone."""
        self.kill()
        self._settings.write_text(json.dumps(self._said | settings))
        for pod in self.executors():
            self.harness.api.delete("Pod", pod["metadata"]["name"], AUDIT_NAMESPACE)
        self.harness.wait(lambda: not self.executors(), "there are no executors")
        module = "delayed_topics_audit_testing.spark_driver"
        arguments = [sys.executable, "-m", module, self._jars, str(self._settings), self.master]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def end(self) -> None:
        """Ends Spark, and returns when it has ended."""
        assert self._process is not None
        self._process.communicate()

    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def wait_for_executor(self) -> str:
        """Waits for an executor, and returns its name."""
        names: list[str] = []

        def there() -> bool:
            names[:] = [pod["metadata"]["name"] for pod in self.executors()]
            return bool(names)

        self.harness.wait(there, "there is an executor", seen=self._log.read_text)
        return names[0]

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # Java is a process of its own and makes executors
            self._process.wait()


@pytest.fixture(scope="module")
def job(api: KubeApi, broker: Broker, jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    with OperatorHarness(api, broker, OperatorProcess(api, "--audit-executors")).opened() as harness:
        made = Job(harness, jars, tmp_path_factory.mktemp("spark"))
        yield made
        made.kill()


def an_executor_is_there(job: Job) -> Act:
    return Act(job.start, lambda: bool(job.executors()), again=True)


def an_executor_whose_end_no_watch_has_told_is_replaced(job: Job) -> Act:
    """Spark does not begin a watch again that has ended, so it also lists pods every half minute."""
    polling = {
        "spark.kubernetes.executor.enableApiWatcher": "false",
        "spark.kubernetes.executor.apiPollingInterval": "1s",
    }
    return an_executor_that_has_failed_is_replaced(job, **polling)


def an_executor_that_has_failed_is_replaced(job: Job, **settings: str) -> Act:
    job.start(**settings)
    name = job.wait_for_executor()
    where = (f"--namespace={AUDIT_NAMESPACE}", "--subresource=status", "--type=merge")
    failed = json.dumps({"status": {"phase": "Failed"}})

    def replaced() -> bool:
        there = [pod["metadata"]["name"] for pod in job.executors()]
        return bool(there) and name not in there

    return Act(lambda: job.harness.api.kubectl("patch", "pod", name, *where, "-p", failed), replaced)


def executors_go_with_their_audit(job: Job) -> Act:
    def play() -> None:
        job.start()
        job.wait_for_executor()
        job.end()

    return Act(play, lambda: not job.executors(), again=True)


STORIES: Mapping[str, Callable[[Job], Act]] = {
    **dict.fromkeys(("create", "get", "watch"), an_executor_is_there),
    "list": an_executor_whose_end_no_watch_has_told_is_replaced,
    "delete": an_executor_that_has_failed_is_replaced,
    "deletecollection": executors_go_with_their_audit,
}


@pytest.mark.parametrize("grant", [pytest.param(grant, id=str(grant)) for grant in DRIVER])
def test_a_right_of_the_job_of_an_audit_with_executors_is_missed_when_it_is_taken_away(job: Job, grant: Grant) -> None:
    server = job.harness.api.server
    act = STORIES[grant.right.verb](job)
    begin = server.audit_log.stat().st_size

    def refused() -> list[Right]:
        return list(missed(server.audit_log, USER, begin=begin))

    with without(server, grant, user=USER, namespace=AUDIT_NAMESPACE):
        act.do()
        job.harness.wait(lambda: bool(refused()) and (job.ended() or len(refused()) > 1), f"Spark is refused: {grant}")
        assert not act.done()
        assert set(refused()) == {grant.right}
    if act.again:
        act.do()
    job.harness.wait(act.done, "the act is done once the right is back")
