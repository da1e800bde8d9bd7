"""What an API server's audit log says of rights that were missing."""

import json
from pathlib import Path

from delayed_topics_devcluster.audit_log import Right, missed

USER = "system:serviceaccount:delayed-topics-system:delayed-topics-operator"


def refused(resource: str, why: str = "") -> str:
    message = f'{resource} is forbidden: User "{USER}" cannot patch resource "{resource}" in API group "apps" at the cluster scope{why}'
    return json.dumps({"user": {"username": USER}, "responseStatus": {"code": 403, "message": message}}) + "\n"


def test_a_refusal_of_a_server_that_has_not_read_its_roles_yet_is_no_lack_of_a_right(tmp_path: Path) -> None:
    why = (
        ': RBAC: [clusterrole.rbac.authorization.k8s.io "system:discovery" not found, '
        'clusterrole.rbac.authorization.k8s.io "delayed-topics-operator" not found]'
    )
    log = tmp_path / "audit.log"
    log.write_text(refused("statefulsets", why) + refused("deployments"))
    assert list(missed(log, USER)) == [Right("apps", "deployments", "patch")]
