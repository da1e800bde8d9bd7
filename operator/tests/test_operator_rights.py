"""The operator has the rights that it needs and no others: without any one of them, it cannot do one of its tasks."""

import re
from collections.abc import Iterator

import pytest
import yaml
from delayed_topics_devcluster.audit_log import Right, missed
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.needs import EVERY, NEEDS, WHERE, Story
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.rights import CHART, OPERATOR, Grant, without

STORIES = [pytest.param(grant, story, id=str(grant)) for grant, story in NEEDS.items()]


def test_no_template_of_the_chart_has_a_rule_that_nobody_has_said_the_need_of() -> None:
    """test_chart_rights.py renders the chart with Helm; this test needs no program."""
    files = [file for file in (CHART / "templates").iterdir() if file.suffix in (".yaml", ".tpl")]
    blocks = [
        block for file in files for block in re.findall(r"^rules:\n((?:  .*\n)+)", file.read_text(), re.MULTILINE)
    ]
    assert len(blocks) == 9, "the chart has nine roles"
    found = {
        Right(group, resource, verb)
        for block in blocks
        for rule in yaml.safe_load(block)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert found == {grant.right for grant in EVERY}


@pytest.fixture(scope="module")
def stage(api: KubeApi, broker: Broker, spark_applications: None) -> Iterator[OperatorHarness]:
    """Yields one harness for all stories, whose namespace lets the operator in."""
    made = OperatorHarness(api, broker, OperatorProcess(api))
    arguments = ("--resync-seconds=3", "--orphans-after-seconds=4", f"--tenant-namespace={made.namespace}")
    made.operator = OperatorProcess(api, *arguments, "--audit-executors", "--audit-spark-applications")
    with made.opened(let_in=True):
        allowed = {"namespaceSelector": {}, "topicPrefixes": [""], "audits": {"maxExecutors": 1}}
        made.api.apply(made.cluster_connection(allow=[allowed]))
        yield made


@pytest.mark.api
@pytest.mark.slow
@pytest.mark.parametrize(("grant", "story"), STORIES)
def test_a_right_of_the_operator_is_missed_when_it_is_taken_away(
    stage: OperatorHarness, grant: Grant, story: Story
) -> None:
    server = stage.api.server
    act = story(stage, re.sub("[^a-z]+", "-", str(grant)))
    begin = server.audit_log.stat().st_size

    def refused() -> list[Right]:
        return list(missed(server.audit_log, OPERATOR, begin=begin))

    tries = 1 if act.again else 2  # a retry must be refused, too
    with without(server, grant, user=OPERATOR, namespace=WHERE.get(grant.role, SYSTEM_NAMESPACE)):
        act.do()
        stage.wait(lambda: len(refused()) >= tries, f"the API server refuses: {grant}")
        assert not act.done()
        assert set(refused()) == {grant.right}
    if act.again:
        act.do()
    stage.wait(act.done, "the act is done once the right is back")
