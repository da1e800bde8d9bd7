"""The API server accepts the manifests in examples/ as they are."""

from pathlib import Path

import pytest
from delayed_topics_e2e.tenant import Install

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("manifest", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: str(path.name))
def test_the_api_server_takes_the_example(manifest: Path, install: Install) -> None:
    assert "created (server dry run)" in install.kube.kubectl("create", "--dry-run=server", "-f", str(manifest))
