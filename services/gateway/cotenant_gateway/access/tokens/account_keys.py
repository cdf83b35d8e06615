"""The keys of service accounts' tokens: one that signs, and those whose tokens are accepted.

In: `--service-account-signing-key-file` and `--service-account-key-file`. Out: the signing key, all keys that verify, and the
documents by which others verify (OpenID discovery, a JWK set). Files are read again when they change; if one has become
unreadable, its last keys stay in use and the process logs it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cotenant_gateway.access.tokens.files import AccessFileError, FileMarks
from cotenant_gateway.access.tokens.jwts import MAX_KEYS, VerificationKey, read_keys, read_signing_key

logger = logging.getLogger(__name__)

JWKS_PATH = "/openid/v1/jwks"
CONFIGURATION_PATH = "/.well-known/openid-configuration"


class AccountKeys:
    """The keys, current with their files."""

    def __init__(self, signing_file: Path, key_files: Sequence[Path] = ()) -> None:
        """Read them. Raises AccessFileError."""
        self._signing_file = signing_file
        self._key_files = tuple(key_files)
        self._marks = FileMarks(signing_file, *key_files)
        self._read()

    def _read(self) -> None:
        signing = read_signing_key(self._signing_file)
        found = {signing.key.kid: signing.key}
        for path in self._key_files:
            found |= {key.kid: key for key in read_keys(path)}
        if len(found) > MAX_KEYS:
            raise AccessFileError(f"--service-account-key-file: {len(found)} keys; at most {MAX_KEYS} are taken")
        self.signing = signing
        self.verifying: tuple[VerificationKey, ...] = tuple(found.values())

    def look(self) -> bool:
        """Read the files again where they have changed; returns whether the keys may differ now."""
        if not self._marks.changed():
            return False
        try:
            self._read()
        except AccessFileError as error:
            logger.error("%s; the keys read before stay in use", error)
            return False
        logger.info("%s: read again, %d keys verify tokens", self._signing_file, len(self.verifying))
        return True

    @property
    def jwks(self) -> bytes:
        """The keys as a JWK set."""
        return msgspec.json.encode({"keys": [key.jwk for key in self.verifying]})

    def configuration(self, issuer: str, jwks_uri: str) -> bytes:
        """Return the OpenID configuration of the issuer."""
        return msgspec.json.encode(
            {
                "issuer": issuer,
                "jwks_uri": jwks_uri or issuer.rstrip("/") + JWKS_PATH,
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": sorted({key.algorithms[0] for key in self.verifying}),
            }
        )
