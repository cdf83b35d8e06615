"""The credentials that `cotenant up` creates: a CA of its own, the gateway's certificate, an administrator's token,
the key that signs tokens of service accounts.

Everything is in `pki` below the data folder, readable by its owner only, and kept from one `up` to the next: a copied
kubeconfig keeps working. The server's certificate is renewed a month before it expires, and when its names differ from
the requested ones. Files given by the user replace generated ones.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cotenant_console.api.credentials import Credentials, kubeconfig_text, write_private
from cotenant_console.pki.account_keys import AccountKeyFiles, prepared_account_keys

PKI_FOLDER = "pki"
ADMINISTRATOR = "cotenant-admin"
MASTERS = "system:masters"
GATEWAY_NAMES = ("localhost", "127.0.0.1", "::1")
"""Names and addresses that every certificate of a server has, beside the requested ones."""
CA_DAYS = 3650
SERVER_DAYS = 397
"""The longest validity that clients accept in a server's certificate."""
RENEW_BEFORE = timedelta(days=30)
TOKEN_BYTES = 32
SKEW = timedelta(minutes=5)


class IdentityError(Exception):
    """The certificates in the data folder, or those that were given, cannot be used."""


@dataclass(frozen=True)
class ProvidedCertificate:
    """Files of the user, instead of those that `up` creates."""

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None


MADE_HERE = ProvidedCertificate()
_SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)
_SERVER_AND_CLIENT = (*_SERVER, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True)
class ServerCertificate:
    """A server's certificate, its key, and its CA."""

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True)
class GatewayIdentity:
    """The gateway's certificates and keys, and an administrator's credentials."""

    certificate: Path
    key: Path
    ca: Path
    tokens: Path
    token: str
    account_keys: AccountKeyFiles

    @property
    def ca_text(self) -> str:
        """The CA's certificate (PEM)."""
        return self.ca.read_text()

    @property
    def credentials(self) -> Credentials:
        """The administrator's."""
        return Credentials(ca=self.ca_text, token=self.token)

    def write_kubeconfig(self, path: Path, url: str) -> None:
        """Write the administrator's kubeconfig for the gateway at this address."""
        write_private(path, kubeconfig_text(url, self.ca_text, ADMINISTRATOR, self.token))

    def gateway_flags(self) -> tuple[str, ...]:
        """The gateway's flags."""
        return (
            *("--tls-cert-file", str(self.certificate), "--tls-private-key-file", str(self.key)),
            *("--token-auth-file", str(self.tokens), "--client-ca-file", str(self.ca)),
            *self.account_keys.gateway_flags(),
        )


def prepared(
    folder: Path, names: Sequence[str], given: ProvidedCertificate = MADE_HERE, now: datetime | None = None
) -> GatewayIdentity:
    """Return the identity of a data folder, made where it is missing. `names`: host names and addresses of the gateway. Raises
    IdentityError."""
    now = now or datetime.now(UTC)
    pki = folder / PKI_FOLDER
    pki.mkdir(mode=0o700, parents=True, exist_ok=True)
    tokens = pki / "tokens.csv"
    try:
        if not tokens.exists():
            write_private(tokens, f'{secrets.token_urlsafe(TOKEN_BYTES)},{ADMINISTRATOR},,"{MASTERS}"\n')
        token = _administrator_token(tokens)
        account_keys = prepared_account_keys(pki)
        ca, ca_key = given.ca or pki / "ca.crt", pki / "ca.key"
        if given.ca is None and not (ca.exists() and ca_key.exists()):
            _make_ca(ca, ca_key, now)
        if (given.certificate is None) != (given.key is None):
            raise IdentityError("a certificate and its key are given together")
        if given.certificate is not None and given.key is not None:
            return GatewayIdentity(given.certificate, given.key, ca, tokens, token, account_keys)
        if given.ca is not None:
            raise IdentityError("a CA's certificate is given with the server's certificate and key: its own key is not here")
        certificate, key = pki / "server.crt", pki / "server.key"
        if not _serves(certificate, key, ca, names, now):
            _make_server(certificate, key, ca, ca_key, names, now)
        return GatewayIdentity(certificate, key, ca, tokens, token, account_keys)
    except (OSError, ValueError) as error:
        cure = "move that folder away to create new ones"
        raise IdentityError(f"the certificates in {pki} cannot be used: {error}; {cure}") from error


def nats_certificate(folder: Path, names: Sequence[str], now: datetime | None = None) -> ServerCertificate:
    """Return the certificate of the NATS servers of a data folder, for clients and for one another; it and its CA are
    made where they are missing. Raises IdentityError."""
    now = now or datetime.now(UTC)
    pki = folder / PKI_FOLDER
    made = ServerCertificate(pki / "nats-server.crt", pki / "nats-server.key", pki / "ca.crt")
    try:
        pki.mkdir(mode=0o700, parents=True, exist_ok=True)
        ca_key = pki / "ca.key"
        if not (made.ca.exists() and ca_key.exists()):
            _make_ca(made.ca, ca_key, now)
        if not _serves(made.certificate, made.key, made.ca, names, now):
            _make_server(made.certificate, made.key, made.ca, ca_key, names, now, "cotenant-nats", _SERVER_AND_CLIENT)
    except (OSError, ValueError) as error:
        cure = "move that folder away to create new ones"
        raise IdentityError(f"the certificates in {pki} cannot be used: {error}; {cure}") from error
    return made


def _administrator_token(tokens: Path) -> str:
    for line in tokens.read_text().splitlines():
        token, _, rest = line.partition(",")
        if rest.partition(",")[0] == ADMINISTRATOR:
            return token
    raise IdentityError(f"{tokens} has no token of {ADMINISTRATOR}: add one, or remove the file to create a new one")


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _make_ca(ca: Path, ca_key: Path, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"cotenant CA {secrets.token_hex(4)}")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _builder(name, name, key.public_key(), now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(ca_key, _key_text(key))
    write_private(ca, _pem(made))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _make_server(
    certificate: Path,
    key_file: Path,
    ca: Path,
    ca_key: Path,
    names: Sequence[str],
    now: datetime,
    common_name: str = "cotenant-gateway",
    usages: Sequence[x509.ObjectIdentifier] = _SERVER,
) -> None:
    authority = x509.load_pem_x509_certificate(ca.read_bytes())
    signing = serialization.load_pem_private_key(ca_key.read_bytes(), password=None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{ca_key} is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    made = (
        _builder(subject, authority.subject, key.public_key(), now, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .sign(signing, hashes.SHA256())
    )
    write_private(key_file, _key_text(key))
    write_private(certificate, _pem(made))


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _serves(certificate: Path, key: Path, ca: Path, names: Sequence[str], now: datetime) -> bool:
    """Whether a server's certificate exists, of this CA, for these names, and is valid long enough."""
    if not (certificate.exists() and key.exists()):
        return False
    held = x509.load_pem_x509_certificate(certificate.read_bytes())
    authority = x509.load_pem_x509_certificate(ca.read_bytes())
    try:
        held.verify_directly_issued_by(authority)
        held_names = set(held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return held.not_valid_after_utc - now > RENEW_BEFORE and held_names == {_general_name(name) for name in names}
