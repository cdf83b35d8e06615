"""The key that signs tokens of service accounts, and those whose tokens are accepted.

In: the folder `pki`. Out: `service-account.key` (0600), made where it is missing, and `service-account.pub`, which holds its
public half after those of previous keys. So a key is replaced by removing it and restarting the gateway: tokens
that the old one signed stay valid until its public half is removed from the second file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from cotenant_console.api.credentials import write_private


@dataclass(frozen=True)
class AccountKeyFiles:
    """The two files."""

    signing: Path
    verifying: Path

    def gateway_flags(self) -> tuple[str, ...]:
        """The gateway's flags."""
        return (
            *("--service-account-signing-key-file", str(self.signing)),
            *("--service-account-key-file", str(self.verifying)),
        )


def prepared_account_keys(pki: Path) -> AccountKeyFiles:
    """Return the files of a folder, made where they are missing. Raises OSError, ValueError."""
    files = AccountKeyFiles(pki / "service-account.key", pki / "service-account.pub")
    if not files.signing.exists():
        made = ec.generate_private_key(ec.SECP256R1())
        pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_private(files.signing, pem.decode())
    key = load_pem_private_key(files.signing.read_bytes(), password=None)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    known = files.verifying.read_text() if files.verifying.exists() else ""
    if public not in known:
        separator = "" if not known or known.endswith("\n") else "\n"
        write_private(files.verifying, known + separator + public)
    return files
