"""The settings with which clients reach one Kafka cluster, and their two formats: files of a mounted Secret, and librdkafka properties."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from delayed_topics_kafka.errors import ConnectionInvalid

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_FORMS: Final = {
    "bootstrap_servers": ("bootstrap-servers", "bootstrap.servers"),
    "security_protocol": ("security-protocol", "security.protocol"),
    "sasl_mechanism": ("sasl-mechanism", "sasl.mechanism"),
    "username": ("username", "sasl.username"),
    "password": ("password", "sasl.password"),
    "ca_pem": ("ca.crt", "ssl.ca.pem"),
    "certificate_pem": ("tls.crt", "ssl.certificate.pem"),
    "key_pem": ("tls.key", "ssl.key.pem"),
    "token_endpoint_url": ("token-endpoint-url", "sasl.oauthbearer.token.endpoint.url"),
    "token_endpoint_ca_pem": ("token-endpoint-ca.crt", "https.ca.pem"),
    "oauth_client_id": ("oauth-client-id", "sasl.oauthbearer.client.id"),
    "oauth_client_secret": ("oauth-client-secret", "sasl.oauthbearer.client.secret"),
    "oauth_scope": ("oauth-scope", "sasl.oauthbearer.scope"),
    "oauth_extensions": ("oauth-extensions", "sasl.oauthbearer.extensions"),
}
"""Maps each field to its file in a Secret and to its librdkafka property."""

_ALSO_CALLED: Final = {"max.in.flight.requests.per.connection": ("max.in.flight",)}

_OIDC: Final = {"sasl.oauthbearer.method": "oidc"}
"""The client library fetches and renews tokens by itself, in a thread of its own."""

_AUTHORITIES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
)

OF_ALL_CLIENTS: Final = {
    # The timeout of one connection attempt. The kernel repeats its SYN 1, 3, 7 and 15 s after the first one. With the default of 30 s,
    # the client therefore notices up to 16 s late that the network is back. With 5 s, it notices within 3 s.
    "socket.connection.setup.timeout.ms": 5000,
    # The default of producers is true. They would re-create a topic that was just deleted, with the default settings of the brokers, as a
    # topic that belongs to no delayed topic.
    "allow.auto.create.topics": False,
}


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Bootstrap servers and credentials. The repr shows no secrets. Raises ConnectionInvalid.

    With `token_endpoint_url`, the clients fetch their OAUTHBEARER tokens there, as an OAuth client with a secret.
    `oauth_extensions` are SASL extensions, such as "logicalCluster=lkc-1,identityPoolId=pool-1". `further` has the librdkafka
    properties that have no field of their own.
    """

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_pem: str | None = field(default=None, repr=False)
    certificate_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    token_endpoint_url: str | None = None
    token_endpoint_ca_pem: str | None = field(default=None, repr=False)
    oauth_client_id: str | None = None
    oauth_client_secret: str | None = field(default=None, repr=False)
    oauth_scope: str | None = None
    oauth_extensions: str | None = None
    further: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise ConnectionInvalid("a connection must name its bootstrap servers, as host:port[,host:port…]")
        if self.security_protocol not in SECURITY_PROTOCOLS:
            raise ConnectionInvalid(
                f"security protocol {self.security_protocol!r} must be one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        if self.sasl_mechanism is not None and not self.security_protocol.startswith("SASL_"):
            raise ConnectionInvalid(
                f"SASL mechanism {self.sasl_mechanism} needs the security protocol SASL_SSL or SASL_PLAINTEXT, "
                f"but it is {self.security_protocol}"
            )
        if self.security_protocol.startswith("SASL_") and self.sasl_mechanism is None:
            raise ConnectionInvalid(f"security protocol {self.security_protocol} needs a SASL mechanism")
        if (self.username is None) != (self.password is None):
            raise ConnectionInvalid("a username and a password must be given together")
        if (self.certificate_pem is None) != (self.key_pem is None):
            raise ConnectionInvalid("a client certificate (tls.crt) and its key (tls.key) must be given together")

    def client_config(self) -> dict[str, Any]:
        """Returns the librdkafka properties for any client of this connection."""
        fields = {name: getattr(self, attribute) for attribute, (_, name) in _FORMS.items()}
        oidc = self._oidc() if self.token_endpoint_url is not None else {}
        return {
            **OF_ALL_CLIENTS,
            **oidc,
            **{name: value for name, value in fields.items() if value is not None},
            **self.further,
        }

    def config_with(self, needed: Mapping[str, Any]) -> dict[str, Any]:
        """As `client_config`, for a client that works only with the `needed` properties. Raises ConnectionInvalid if `further` gives one of
        them another value."""
        for name, value in needed.items():
            for spelled in (name, *_ALSO_CALLED.get(name, ())):
                if spelled in self.further and _written(self.further[spelled]) != _written(value):
                    raise ConnectionInvalid(
                        f"the property {spelled} can't be {_written(self.further[spelled])}, because this client works only with "
                        f"{_written(value)}. Remove the property"
                    )
        return {**self.client_config(), **needed}

    def _oidc(self) -> dict[str, Any]:
        own = self.token_endpoint_ca_pem is not None or "https.ca.location" in self.further
        return _OIDC if own or (trusted := trusted_authorities()) is None else {**_OIDC, "https.ca.location": trusted}

    def to_files(self) -> dict[str, str]:
        """Returns the content of a Secret, by file name. The inverse of `from_directory`."""
        values = {file: getattr(self, attribute) for attribute, (file, _) in _FORMS.items()}
        return {file: value for file, value in values.items() if value is not None}

    @classmethod
    def from_directory(cls, path: Path) -> "Connection":
        """Reads a mounted Secret, which has the files of `to_files`. Only bootstrap-servers is always needed. Raises ConnectionInvalid."""
        if not (path / "bootstrap-servers").is_file():
            raise ConnectionInvalid(
                f"the folder {path} must contain the files of a connection, at least bootstrap-servers"
            )
        values: dict[str, Any] = {
            attribute: _content(path / file, attribute)
            for attribute, (file, _) in _FORMS.items()
            if (path / file).is_file()
        }
        return cls(**values)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> "Connection":
        """Takes librdkafka properties, as in the properties file of a client. Raises ConnectionInvalid."""
        known = {name: attribute for attribute, (_, name) in _FORMS.items()} | {
            "sasl.mechanisms": "sasl_mechanism",
            "metadata.broker.list": "bootstrap_servers",
        }
        if not {"bootstrap.servers", "metadata.broker.list"} & properties.keys():
            raise ConnectionInvalid("the properties of a connection must include bootstrap.servers")
        fields: dict[str, Any] = {known[name]: str(value) for name, value in properties.items() if name in known}
        fields["security_protocol"] = fields.get("security_protocol", "PLAINTEXT").upper()
        return cls(**fields, further={name: value for name, value in properties.items() if name not in known})


def trusted_authorities() -> str | None:
    """Returns the file with the certificate authorities that this machine trusts, None if there is none. For token endpoints, the client
    library (2.16) finds such a file by itself only on Red Hat systems."""
    files = (ssl.get_default_verify_paths().cafile, *_AUTHORITIES)
    return next((file for file in files if file and Path(file).is_file()), None)


def _written(value: object) -> str:
    """Returns the value as a properties file spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _content(file: Path, attribute: str) -> str:
    text = file.read_text()
    # a password may end in a space, but a newline at the end comes from an editor or `echo`
    return text.rstrip("\r\n") if attribute in ("password", "oauth_client_secret") else text.strip()
