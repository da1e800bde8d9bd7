"""The compiled modules of the worker's wheels pass the tests that their sources pass."""

import subprocess
import sys
from pathlib import Path

import pytest
from delayed_topics_worker_testing.shipped import shipped_environment, shipped_packages

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


def test_compiled_modules_pass_the_tests_of_their_sources() -> None:
    if not list(shipped_packages().glob("*/plain.*.so")):
        pytest.skip("this machine can't compile, so the wheels are pure")
    tests = [str(file) for file in Path(__file__).parent.glob("test_*.py") if file != Path(__file__)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not broker", "core/tests", *tests]
    done = subprocess.run(command, cwd=ROOT, env=shipped_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_worker_imports_what_was_compiled() -> None:
    folder = shipped_packages()
    if not list(folder.glob("*/plain.*.so")):
        pytest.skip("this machine can't compile, so the wheels are pure")
    code = (
        "import delayed_topics_worker.relay, sys; print(*(m.__file__ for n, m in sys.modules.items() if n in sys.argv))"
    )
    names = [f"delayed_topics_worker.{name}" for name in ("intake", "plain", "release", "outbox", "shelf")]
    command = [sys.executable, "-c", code, *names, "delayed_topics_core.headers", "delayed_topics_core.window"]
    env = shipped_environment()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    files = [Path(file) for file in done.stdout.split()]
    assert len(files) == 7
    assert all(file.suffix == ".so" and file.is_relative_to(folder) for file in files)
