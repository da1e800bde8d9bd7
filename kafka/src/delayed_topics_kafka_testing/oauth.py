"""A token endpoint of OAuth 2.0, and a broker that accepts its tokens. Both are real, and use TLS on loopback."""

import base64
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from delayed_topics_devcluster.broker import PATIENT, Broker, BrokerAddress
from delayed_topics_devcluster.pki import CertificateAuthority
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_kafka.connection import Connection

LOOPBACK = "127.0.0.1"
ISSUER = "https://login.example.com"
AUDIENCE = "kafka"
SCOPE = "records"
CLIENT_ID = "delays"
CLIENT_SECRET = 's3cret "of \\ the client'
_SECURITY = "org.apache.kafka.common.security.oauthbearer"


class TokenEndpoint:
    """A context manager that issues signed tokens to one client. `given` counts them. If `away` is set, it issues none."""

    def __init__(self, folder: Path, *, lifetime_seconds: int) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._lifetime_seconds = lifetime_seconds
        self.given = 0
        self.away = False
        self.authority = CertificateAuthority(folder)
        pair = self.authority.issue("token-endpoint", common_name="login", names=[LOOPBACK])
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [self._public_key()]}))
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://{LOOPBACK}:{self._server.server_port}/oauth2/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, authorization: str | None, form: Mapping[str, list[str]]) -> tuple[int, dict[str, object]]:
        if self.away:
            return 503, {"error": "temporarily_unavailable"}
        if authorization != f"Basic {base64.b64encode(f'{CLIENT_ID}:{CLIENT_SECRET}'.encode()).decode()}":
            return 401, {"error": "invalid_client", "error_description": "unknown client, or wrong secret"}
        if form != {"grant_type": ["client_credentials"], "scope": [SCOPE]}:
            return 400, {"error": "invalid_request", "error_description": repr(form)}
        self.given += 1
        return 200, {"access_token": self._token(), "token_type": "Bearer", "expires_in": self._lifetime_seconds}

    def _token(self) -> str:
        now = time.time()
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": CLIENT_ID, "scope": SCOPE, "iat": int(now)}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": "1"}, {**claims, "exp": int(now) + self._lifetime_seconds})
        signed = ".".join(_base64url(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_base64url(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def _public_key(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        n, e = (_base64url(number.to_bytes((number.bit_length() + 7) // 8)) for number in (numbers.n, numbers.e))
        return {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": n, "e": e}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                status, content = answer(self.headers["Authorization"], form)
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class OAuthKafka:
    """A broker with a listener that needs tokens (`connection`) and a plain one (`broker.bootstrap`)."""

    def __init__(self, broker: Broker, tokens: TokenEndpoint, bootstrap: str) -> None:
        self.broker = broker
        self.tokens = tokens
        authority = tokens.authority.certificate.read_text()
        self.connection = Connection(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            ca_pem=authority,
            token_endpoint_url=tokens.url,
            token_endpoint_ca_pem=authority,
            oauth_client_id=CLIENT_ID,
            oauth_client_secret=CLIENT_SECRET,
            oauth_scope=SCOPE,
            oauth_extensions="logicalCluster=lkc-1,identityPoolId=pool-1",
        )

    def with_secret(self, secret: str) -> Connection:
        return replace(self.connection, oauth_client_secret=secret)


@contextmanager
def oauth_kafka(folder: Path, *, lifetime_seconds: int = 5) -> Iterator[OAuthKafka]:
    """Starts a token endpoint and a broker. A connection to the broker lasts no longer than its token, so a client that stays connected
    has to authenticate again with a new token."""
    address = BrokerAddress.of_cluster(1, LOOPBACK)[0]
    listener = f"{LOOPBACK}:{free_ports(1)[0]}"
    with TokenEndpoint(folder, lifetime_seconds=lifetime_seconds) as tokens:
        pair = tokens.authority.issue("broker", common_name="kafka", names=[LOOPBACK])
        keys = folder / "broker.pem"
        keys.write_text(pair.key.read_text() + pair.certificate.read_text())
        outside = {"PLAINTEXT": f"{LOOPBACK}:{address.client_port}", "OAUTH": listener}
        listeners = {**outside, "CONTROLLER": f"{LOOPBACK}:{address.controller_port}"}
        prefix = "listener.name.oauth"
        settings = {
            **PATIENT,
            "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OAUTH:SASL_SSL",
            f"{prefix}.ssl.keystore.type": "PEM",
            f"{prefix}.ssl.keystore.location": str(keys),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{_SECURITY}.OAuthBearerLoginModule required;",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{_SECURITY}.OAuthBearerValidatorCallbackHandler",
            f"{prefix}.oauthbearer.connections.max.reauth.ms": "3600000",
            "sasl.oauthbearer.jwks.endpoint.url": tokens.jwks.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.clock.skew.seconds": "1",
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.jwks.as_uri()}"
        with Broker(settings=settings, environment={"JAVA_TOOL_OPTIONS": allowed}, address=address) as broker:
            yield OAuthKafka(broker, tokens, listener)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
