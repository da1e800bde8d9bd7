"""A pod of the former template that restarts while others are replaced starts with what its template was made for."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator_testing.simulation import Simulation


def template(simulation: Simulation) -> dict[str, Any]:
    found: dict[str, Any] = simulation.children["StatefulSet", simulation.name]["spec"]["template"]
    return found


def mounted(simulation: Simulation, of_template: dict[str, Any]) -> dict[str, str]:
    """Returns the files that a pod of this template would mount now. A KeyError: it could not start."""
    files = {}
    for volume in of_template["spec"]["volumes"]:
        for source in volume["projected"]["sources"]:
            for item in next(iter(source.values()))["items"]:
                if "configMap" in source:
                    text = simulation.children["ConfigMap", source["configMap"]["name"]]["data"][item["key"]]
                elif "secret" in source:
                    data = simulation.children["Secret", source["secret"]["name"]]["data"]
                    text = base64.b64decode(data[item["key"]]).decode()
                else:
                    key = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
                    text = of_template["metadata"]["annotations"][key]
                files[item["path"]] = text
    return files


def reconnect(simulation: Simulation, **files: str) -> None:
    assert isinstance(simulation.connection, Usable)
    simulation.connection = replace(simulation.connection, files={"bootstrap-servers": "k:9092", **files})
    simulation.settle()


def test_a_worker_that_restarts_with_the_former_memory_limit_has_the_former_window() -> None:
    """In the past, it had the window of the new limit, and was killed because it used more than its own."""
    simulation = Simulation.serving(workers={"replicas": 3})
    former = template(simulation)
    before = mounted(simulation, former)
    limits = {"template": {"resources": {"limits": {"memory": "8Gi"}}}}
    simulation.edit(workers={"replicas": 3, **limits})
    simulation.settle()
    assert mounted(simulation, former) == before
    assert mounted(simulation, template(simulation)) != before


@pytest.mark.parametrize("may_roll", [True, False])
def test_a_worker_that_restarts_finds_the_files_of_the_former_way_to_log_in(may_roll: bool) -> None:
    """In the past, the kubelet could not mount a key that the connection no longer had, and the pod did not start."""
    simulation = Simulation.serving(workers={"replicas": 3})
    reconnect(simulation, password="secret")
    simulation.serve()
    former = template(simulation)
    simulation.may_roll = may_roll
    reconnect(simulation, **{"client.key": "key"})
    assert mounted(simulation, former)["connection/password"] == "secret"
    simulation.may_roll = True
    simulation.settle()
    assert mounted(simulation, former)["connection/password"] == "secret"
    simulation.serve()
    secret = simulation.children["Secret", f"{simulation.name}-connection"]
    assert sorted(secret["data"]) == ["bootstrap-servers", "client.key"], "it is gone when no pod needs it"


def test_a_worker_that_restarts_uses_a_new_password_at_once() -> None:
    """The former one may be revoked already."""
    simulation = Simulation.serving(workers={"replicas": 3})
    reconnect(simulation, password="former")
    simulation.serve()
    former = template(simulation)
    reconnect(simulation, password="new")
    assert mounted(simulation, former)["connection/password"] == "new"
