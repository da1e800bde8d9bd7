"""The audit log of an API server shows which rights its users lacked."""

import json
from pathlib import Path

from delayed_topics_devcluster.audit_log import Right, missed

USER = "system:serviceaccount:delayed-topics-system:delayed-topics-operator"


def refused(resource: str) -> str:
    message = f'{resource} is forbidden: User "{USER}" cannot patch resource "{resource}" in API group "apps" at the cluster scope'
    return json.dumps({"user": {"username": USER}, "responseStatus": {"code": 403, "message": message}}) + "\n"


def test_a_refusal_of_a_server_that_has_not_read_its_roles_yet_is_no_lack_of_a_right(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    before, early, after = refused("controllerrevisions"), refused("statefulsets"), refused("deployments")
    log.write_text(before + early + after)
    unready = range(len(before), len(before + early))
    first, second = Right("apps", "controllerrevisions", "patch"), Right("apps", "deployments", "patch")
    assert list(missed(log, USER, unready=[unready])) == [first, second]
    assert list(missed(log, USER, begin=len(before), unready=[unready])) == [second]
