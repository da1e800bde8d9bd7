"""With any values, the chart grants only the rights in `EVERY`, the list of needs, and only to the accounts and in the namespaces that
need them."""

from collections.abc import Iterator
from typing import Any

import pytest
from delayed_topics_operator_testing.needs import EVERY
from delayed_topics_operator_testing.rights import Grant, granted, short_name

pytestmark = pytest.mark.api

Manifest = dict[str, Any]
ROLES = ("ClusterRole", "Role")
BINDINGS = ("ClusterRoleBinding", "RoleBinding")


def of_kinds(objects: list[Manifest], kinds: tuple[str, ...]) -> list[Manifest]:
    return [found for found in objects if found["kind"] in kinds]


def bound(objects: list[Manifest]) -> Iterator[tuple[str, str, str]]:
    """Yields the role of each binding, its namespace (empty: the whole cluster), and the account."""
    for binding in of_kinds(objects, BINDINGS):
        for subject in binding["subjects"]:
            assert subject["kind"] == "ServiceAccount"
            account = f"{subject['namespace']}/{subject['name']}"
            yield short_name(binding["roleRef"]["name"]), binding["metadata"].get("namespace", ""), account


def test_a_verb_of_a_rule_is_granted_only_if_a_test_fails_without_it(everything: list[list[Manifest]]) -> None:
    every: set[Grant] = set()
    for objects in everything:
        every |= granted(of_kinds(objects, ROLES))
    assert every == set(EVERY)


@pytest.mark.parametrize(("executors", "spark_applications"), [(False, False), (True, False), (True, True)])
def test_a_role_is_bound_where_its_rights_are_needed_and_to_nobody_else(
    render: Any, executors: bool, spark_applications: bool
) -> None:
    audits_values = {"executors": {"enabled": executors}, "sparkApplications": {"enabled": spark_applications}}
    objects = render({"tenantNamespaces": ["shop"], "audits": audits_values})
    operator, audits = "chart-test/delayed-topics-operator", "chart-test-audits"
    expected = {
        ("operator", "", operator),
        ("operator-lease", "chart-test", operator),
        ("operator-namespace", "chart-test", operator),
        ("operator-namespace", "shop", operator),
        ("audits", audits, operator),
        ("audits", "shop", operator),
        ("audits-namespace", audits, operator),
    }
    if executors:
        expected |= {("audit-driver", home, f"{home}/delayed-topics-audit-driver") for home in (audits, "shop")}
    if spark_applications:
        expected |= {("audits-spark-applications", home, operator) for home in (audits, "shop")}
    found = list(bound(objects))
    assert set(found) == expected
    assert len(found) == len(expected)
