"""The connections that a real API server refuses, and its messages."""

import re
from typing import Any
from uuid import uuid4

import pytest
from delayed_topics_crds import API_VERSION
from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.errors import CommandFailedError

pytestmark = pytest.mark.api


def connection(**spec: Any) -> dict[str, Any]:
    whole = {"bootstrapServers": ["kafka:9092"]} | spec
    metadata = {"name": f"test-{uuid4().hex[:8]}"}
    return {"apiVersion": API_VERSION, "kind": "ClusterKafkaConnection", "metadata": metadata, "spec": whole}


def oauth(**fields: Any) -> dict[str, Any]:
    said = {"tokenEndpointUrl": "https://login.example.com/oauth2/token", "secretRef": {"name": "client"}}
    return {"mechanism": "OAUTHBEARER", "oauth": said | fields}


SCRAM = {"mechanism": "SCRAM-SHA-512", "secretRef": {"name": "user"}}
IN_NOTHING = {"matchExpressions": [{"key": "team", "operator": "In"}]}
ACCEPTED = {
    "OAUTHBEARER": connection(
        tls={},
        sasl=oauth(
            clientId="delays",
            scope="kafka api://x/.default",
            extensions={"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
            caSecretRef={"name": "ca"},
        ),
    ),
}
REFUSED = {
    "no server": (connection(bootstrapServers=[]), "must list 1 to 16 servers"),
    "17 servers": (connection(bootstrapServers=["kafka:9092"] * 17), "must list 1 to 16 servers"),
    "a server with a scheme": (connection(bootstrapServers=["SSL://kafka:9092"]), "must be host:port"),
    "a server without port": (connection(bootstrapServers=["kafka"]), "must be host:port"),
    "PLAIN without TLS": (connection(sasl={**SCRAM, "mechanism": "PLAIN"}), "must come with tls"),
    "two user names": (
        connection(sasl={"username": "shop", "secretRef": {"name": "shop", "usernameKey": "user"}}),
        "username must not come with secretRef.usernameKey: leave one of them out",
    ),
    "an empty user name": (connection(sasl={**SCRAM, "username": ""}), "must be the name of a Kafka user"),
    "a key that is a path": (
        connection(sasl={"secretRef": {"name": "shop", "passwordKey": "../password"}}),
        "must be a key of the Secret",
    ),
    "two minutes of skew": (connection(brokerSkewMs=120_000), "must be between 0 and 60000 milliseconds"),
    "65 grants": (
        connection(allow=[{"namespaceSelector": {}, "topicPrefixes": [""]}] * 65),
        "must list at most 64 grants",
    ),
    "a grant without prefix": (
        connection(allow=[{"namespaceSelector": {}, "topicPrefixes": []}]),
        "must list 1 to 32 prefixes",
    ),
    "a glob as prefix": (
        connection(allow=[{"namespaceSelector": {}, "topicPrefixes": ["shop.*"]}]),
        "must be the beginning of a topic name",
    ),
    "In without values": (
        connection(allow=[{"namespaceSelector": IN_NOTHING, "topicPrefixes": [""]}]),
        "must have values with In",
    ),
    "tokens without TLS": (connection(sasl=oauth()), "must come with tls"),
    "OAUTHBEARER without a client": (
        connection(tls={}, sasl={"mechanism": "OAUTHBEARER"}),
        "oauth must come with the mechanism OAUTHBEARER",
    ),
    "a client without OAUTHBEARER": (
        connection(tls={}, sasl={**oauth(), "mechanism": "SCRAM-SHA-512", "secretRef": {"name": "user"}}),
        "oauth must come with the mechanism OAUTHBEARER",
    ),
    "a password with OAUTHBEARER": (
        connection(tls={}, sasl={**oauth(), "secretRef": {"name": "user"}}),
        "secretRef must be set, but not with OAUTHBEARER",
    ),
    "SCRAM without a Secret": (connection(sasl={"username": "shop"}), "secretRef must be set"),
    "a user name with OAUTHBEARER": (
        connection(tls={}, sasl={**oauth(), "username": "shop"}),
        "username must not come with OAUTHBEARER",
    ),
    "two client ids": (
        connection(tls={}, sasl=oauth(clientId="delays", secretRef={"name": "client", "clientIdKey": "id"})),
        "clientId must not come with secretRef.clientIdKey",
    ),
    "a token endpoint in plain text": (
        connection(tls={}, sasl=oauth(tokenEndpointUrl="http://login.example.com/token")),
        "must be an HTTPS URL without credentials",
    ),
    "a token endpoint with a password": (
        connection(tls={}, sasl=oauth(tokenEndpointUrl="https://me:secret@login.example.com/token")),
        "must be an HTTPS URL without credentials",
    ),
    "an extension that is the token": (
        connection(tls={}, sasl=oauth(extensions={"auth": "Bearer x"})),
        "must have keys of letters, and none that is auth",
    ),
    "an extension with a comma": (
        connection(tls={}, sasl=oauth(extensions={"identityPoolId": "a,b=c"})),
        "must be a value of visible ASCII characters without commas",
    ),
}


@pytest.mark.parametrize("document", ACCEPTED.values(), ids=ACCEPTED)
def test_a_client_with_all_that_services_ask_for_is_accepted(api_server: ApiServer, document: dict[str, Any]) -> None:
    api_server.dry_run(document)


@pytest.mark.parametrize(("document", "says"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_is_refused_in_our_words(
    api_server: ApiServer, document: dict[str, Any], says: str
) -> None:
    with pytest.raises(CommandFailedError, match=re.escape(says)):
        api_server.dry_run(document)
