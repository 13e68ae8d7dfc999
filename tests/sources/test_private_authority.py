"""A server whose certificate is from an authority of the user's own is trusted only if the settings name it."""

import json
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gpucost.core.errors import MetricsUnavailableError, SettingsError
from gpucost.settings import ClusterSettings
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus.connection import connect
from tests.recording_server import recording_server

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
EMPTY = b'{"status": "success", "data": {"resultType": "matrix", "result": []}}'
VALID = timedelta(days=2)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._signed(
            self._name, self._key, x509.BasicConstraints(ca=True, path_length=None), _SIGNS_CERTIFICATES
        )
        self.pem = certificate.public_bytes(Encoding.PEM).decode()

    def write_server_certificate(self, path: Path) -> None:
        """Write a key and a certificate for 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "metrics")])
        certificate = self._signed(name, key, x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]))
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(text + certificate.public_bytes(Encoding.PEM))

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - VALID).not_valid_after(now + VALID)
        # Python requires the identifiers and the key usage from 3.13 on (VERIFY_X509_STRICT).
        for identifier in (
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        ):
            builder = builder.add_extension(identifier, critical=False)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        return builder.sign(self._key, hashes.SHA256())


def server_context(authority: Authority, folder: Path) -> SSLContext:
    authority.write_server_certificate(folder / "server.pem")
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


def cluster(url: str, ca_certificates: str | None) -> ClusterSettings:
    prometheus = {"url": url, "timeout_seconds": 5, "ca_certificates": ca_certificates}
    entries = {name: entry for name, entry in prometheus.items() if entry is not None}
    document = {"clusters": [{"name": "blue", "prometheus": entries}], "pricing": {"source": "auto"}}
    return parse_settings(json.dumps(document)).clusters[0]


def test_only_a_server_of_a_named_authority_is_trusted(tmp_path: Path) -> None:
    company, other = Authority("company"), Authority("other")
    with recording_server(body=EMPTY, tls=server_context(company, tmp_path)) as (url, _):
        for trusted in (company.pem, other.pem + company.pem):
            assert connect(cluster(url, trusted)).query_range("up", HOUR, HOUR) == []
        for untrusted in (None, other.pem):
            with pytest.raises(MetricsUnavailableError, match="certificate is not trusted"):
                connect(cluster(url, untrusted)).query_range("up", HOUR, HOUR)


@pytest.mark.parametrize(
    ("url", "certificates", "message"),
    [
        ("http://127.0.0.1:9090", Authority("company").pem, "ca_certificates is only allowed with an https address"),
        (
            "https://mimir.corp",
            "own.pem",
            "has no readable certificate. Write the text from -----BEGIN CERTIFICATE-----",
        ),
        ("https://mimir.corp", "-----BEGIN PRIVATE KEY-----", "has a private key, which must not be in the settings"),
    ],
)
def test_settings_name_certificates_for_https(url: str, certificates: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        cluster(url, certificates)
