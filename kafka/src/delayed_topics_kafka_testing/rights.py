"""Rights on a broker that has an authorizer, of everybody."""

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
from delayed_topics_kafka.connection import Connection

AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Settings of a broker. A resource with any rule is closed there for everything that no rule allows."""

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
    """Everything else stays allowed."""
    _make(connection, kind, name, [(operation, AclPermissionType.DENY), (AclOperation.ALL, AclPermissionType.ALLOW)])


def lift(connection: Connection, kind: ResourceType, name: str) -> None:
    """Remove all rules of it."""
    client = AdminClient(connection.client_config())
    everything = AclBindingFilter(kind, name, *_EVERYBODY, AclOperation.ANY, AclPermissionType.ANY)
    for removed in client.delete_acls([everything]).values():
        removed.result(60)


def _make(
    connection: Connection, kind: ResourceType, name: str, rights: Sequence[tuple[AclOperation, AclPermissionType]]
) -> None:
    """In one request, so that nothing is closed in between."""
    client = AdminClient(connection.client_config())
    for made in client.create_acls([AclBinding(kind, name, *_EVERYBODY, *right) for right in rights]).values():
        made.result(60)
