"""There is one platform on a machine: whose it is can be told from its processes alone."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_devcluster import cluster
from delayed_topics_devcluster.errors import PreconditionError
from delayed_topics_devcluster.namespace import Namespace
from delayed_topics_devcluster.waiting import wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Path]:
    """The first process of a cluster as somebody else's cache has it: named so, it waits, and has no namespaces."""
    pause = tmp_path / "delayed-topics" / "bin" / "0123456789abcdef" / "pause"
    named_so = subprocess.Popen(["bash", "-c", 'exec -a "$0" sleep 600', pause])
    try:
        wait_until(lambda: pause in {n.program for n in Namespace.running()}, what="it runs")
        yield pause
    finally:
        named_so.kill()
        named_so.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts clusters")
def test_a_cluster_that_others_started_is_refused_and_said_whose_it_is(program: Path) -> None:
    with pytest.raises(PreconditionError, match="`make down`, here or there, ends it") as refused:
        cluster.up()
    assert str(program.parents[2] / "cluster") in refused.value.message
    assert "started from 600 " in refused.value.message  # the word that stands where a work tree does


def test_one_that_is_only_being_made_is_found_too(program: Path) -> None:
    making = subprocess.Popen(["bash", "-c", 'exec -a unshare tail -f /dev/null "$0" "$1"', program, "/somebody"])
    try:
        wait_until(lambda: making.pid in {init.pid for init in Namespace.inits()}, what="found")
        assert making.pid not in {namespace.init.pid for namespace in Namespace.running()}
    finally:
        making.kill()
        making.wait()
