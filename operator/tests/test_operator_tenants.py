"""Which namespaces belong to tenants."""

from typing import Any

import click
import pytest
from click.testing import CliRunner
from delayed_topics_crds.pods import LabelSelector, LabelSelectorRequirement
from delayed_topics_operator.cli import main
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.engine.tenants import Tenants

EVERY = LabelSelector(match_expressions=(LabelSelectorRequirement(key="team", operator="Exists"),))


def tenants(selector: LabelSelector | None, **labels: dict[str, str]) -> Tenants:
    """Returns the Tenants of namespaces with these labels, with one further namespace that is listed."""
    store = Store()
    for name, given in labels.items():
        store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": given}})
    settings: dict[str, Any] = {"tenant_namespaces": ("listed",), "worker_image": "w", "audit_image": "a"}
    return Tenants(Settings(namespace="system", audit_namespace="audits", tenant_selector=selector, **settings), store)


def test_namespaces_that_are_listed_and_those_that_have_the_labels_are_tenants() -> None:
    known = tenants(EVERY, shop={"team": "a"}, other={})
    assert known.requested() == {"listed", "shop"}
    assert tenants(None, shop={"team": "a"}).requested() == {"listed"}


def test_the_platforms_own_namespaces_are_nobodys_whatever_their_labels_are() -> None:
    assert tenants(EVERY, system={"team": "a"}, audits={"team": "a"}).requested() == {"listed"}


def test_one_is_a_tenants_as_soon_as_what_is_in_it_was_listed_and_no_longer_than_it_is_asked_for() -> None:
    known = tenants(EVERY, shop={"team": "a"})
    assert not known.may_use("shop")
    assert known.enter(known.requested()) == {"shop"}
    assert known.may_use("shop")
    assert known.may_audit("shop")
    assert known.worker_namespaces == {"system", "listed", "shop"}
    assert known.enter({"listed"}) == {"shop"}
    assert not known.may_use("shop")


@pytest.mark.parametrize("given", ["team=a", '{"matchLabel": {}}', '{"matchLabels": {"team": 1}}'])
def test_a_selector_that_is_none_is_refused_with_what_is_wrong(given: str) -> None:
    needed = ["--namespace=a", "--audit-namespace=b", "--worker-image=w", "--audit-image=a"]
    result = CliRunner().invoke(main, ["run", *needed, f"--tenant-selector={given}"])
    assert result.exit_code == click.UsageError.exit_code
    assert "--tenant-selector': it must be a LabelSelector in JSON: " in " ".join(result.output.split())
