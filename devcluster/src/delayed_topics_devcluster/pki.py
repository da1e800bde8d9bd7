"""The cluster's certificates and kubeconfigs. Every start makes new ones, and no other cluster accepts them."""

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["CertificateAuthority", "KeyPair", "write_key_pair"]

VALID_DAYS = 365
CONTEXT = "delayed-topics"


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


class CertificateAuthority:
    """Signs certificates of servers and clients. `certificate`: the file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("delayed-topics-devcluster", ())
        self.certificate = folder / "ca.crt"
        signed = (
            _builder(self._name, self._key.public_key())
            .issuer_name(self._name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, file_name: str, *, common_name: str, organizations: Sequence[str] = (), names: Sequence[str] = ()
    ) -> KeyPair:
        """Issues a certificate for a client. With `names` (DNS names and addresses), it is for a server too."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
        builder = (
            _builder(_name(common_name, organizations), key.public_key())
            .issuer_name(self._name)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False
            )
        pair = KeyPair(certificate=self._folder / f"{file_name}.crt", key=self._folder / f"{file_name}.key")
        signed = builder.sign(self._key, hashes.SHA256())
        pair.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, key)
        return pair

    def kubeconfig(self, file: Path, *, server: str, common_name: str, organizations: Sequence[str] = ()) -> Path:
        """Writes a kubeconfig that contains its certificates and key, so that it can be copied anywhere."""
        pair = self.issue(file.name, common_name=common_name, organizations=organizations)
        with_data = {
            "certificate-authority": self.certificate,
            "client-certificate": pair.certificate,
            "client-key": pair.key,
        }
        data = {f"{name}-data": _base64(path.read_bytes()) for name, path in with_data.items()}
        authority = {"certificate-authority-data": data.pop("certificate-authority-data")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CONTEXT, "cluster": {"server": server, **authority}}],
            "users": [{"name": CONTEXT, "user": data}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
            "current-context": CONTEXT,
        }
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(config))
        return file


def write_key_pair(folder: Path, file_name: str) -> tuple[Path, Path]:
    """Writes a private and a public key without a certificate, for signing and verifying service account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / f"{file_name}.key", folder / f"{file_name}.pub"
    _write_key(private, key)
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _builder(subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
