"""ACLs for all users, on a broker that has an authorizer."""

from collections.abc import Sequence
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection

AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Settings of a broker. As soon as a resource has an ACL, the broker denies everything on it that no ACL allows."""

_EVERYBODY: Final = (ResourcePatternType.LITERAL, "User:*", "*")


def rule(
    connection: Connection,
    kind: ResourceType,
    name: str,
    operations: Sequence[AclOperation],
    permission: AclPermissionType = AclPermissionType.DENY,
) -> None:
    _make(connection, kind, name, [(operation, permission) for operation in operations])


def deny_only(connection: Connection, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Denies one operation to all users. All other operations stay allowed."""
    _make(connection, kind, name, [(operation, AclPermissionType.DENY), (AclOperation.ALL, AclPermissionType.ALLOW)])


def lift(connection: Connection, kind: ResourceType, name: str) -> None:
    """Removes all ACLs of a resource."""
    client, every = AdminClient(connection.client_config()), _every(kind, name)
    for removed in client.delete_acls([every]).values():
        removed.result(60)
    wait_until(lambda: not client.describe_acls(every).result(60), what=f"the broker knows no rule for {name}")


def _make(
    connection: Connection, kind: ResourceType, name: str, rights: Sequence[tuple[AclOperation, AclPermissionType]]
) -> None:
    """Creates ACLs in one request, so that nothing is denied in between. Waits until the broker enforces them, because the controller
    answers earlier."""
    client, every = AdminClient(connection.client_config()), _every(kind, name)
    wanted = [AclBinding(kind, name, *_EVERYBODY, *right) for right in rights]
    for made in client.create_acls(wanted).values():
        made.result(60)
    wait_until(
        lambda: set(wanted) <= set(client.describe_acls(every).result(60)), what=f"the broker has the rules for {name}"
    )


def _every(kind: ResourceType, name: str) -> AclBindingFilter:
    return AclBindingFilter(kind, name, *_EVERYBODY, AclOperation.ANY, AclPermissionType.ANY)
