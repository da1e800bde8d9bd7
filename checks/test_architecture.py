"""The picture of the members shows the imports that the contracts allow."""

import pytest

from checks.architecture import PICTURE, drawn, imports, read_contracts

pytestmark = pytest.mark.check


def test_the_picture_of_the_architecture_is_what_the_contracts_say() -> None:
    assert PICTURE.read_text() == drawn(read_contracts()), "the contracts have changed: run make architecture"


def test_an_arrow_is_what_no_contract_refuses_and_no_other_arrow_implies() -> None:
    layers = [
        "delayed_topics_e2e",
        "delayed_topics | delayed_topics_worker",
        "delayed_topics_core_testing",
        "delayed_topics_core",
    ]
    alone = {"protected_modules": ["delayed_topics_worker"], "allowed_importers": ["delayed_topics_worker_testing"]}
    inner = {"containers": ["delayed_topics"], "layers": ["cli", "topic"]}
    outside = {"source_modules": ["delayed_topics_e2e"], "forbidden_modules": ["delayed_topics"]}
    contracts = [{"type": "layers", "layers": layers}, {"type": "layers", **inner}]
    rows, arrows = imports(contracts)
    assert rows == [("e2e",), ("client", "worker"), ("core",)]
    assert arrows == {"e2e": {"client", "worker"}, "client": {"core"}, "worker": {"core"}, "core": set()}
    _, arrows = imports([*contracts, {"type": "protected", **alone}, {"type": "forbidden", **outside}])
    assert arrows == {"e2e": {"core"}, "client": {"core"}, "worker": {"core"}, "core": set()}
