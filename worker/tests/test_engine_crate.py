"""Runs the tests of the engine's crate."""

import os
import re
import subprocess

import pytest
from delayed_topics_devcluster.engine import engine_environment
from delayed_topics_devcluster.paths import ENGINE_SOURCE

pytestmark = pytest.mark.process


def test_the_tests_of_the_crate_pass() -> None:
    environment = {**os.environ, **engine_environment()}
    command = ["cargo", "test", "--quiet", "--locked", "--all-targets"]
    done = subprocess.run(command, cwd=ENGINE_SOURCE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = sum(map(int, re.findall(r"test result: ok\. (\d+) passed", done.stdout)))
    assert passed, done.stdout
