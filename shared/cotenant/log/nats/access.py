"""A client's access: the credentials of a user on NATS, and the CA of the servers' certificates.

In: a `.creds` file, as `cotenant admin nats-credentials` and `nsc` write them, and a CA's certificate; both may be missing.
Out: the options of a connection. The user's name and account are in the credentials: answers come to an inbox below the
user's name, which no other user may read, and users of the account of nodes reach JetStream under another prefix.
"""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import msgspec

CELL, NODES = "cell", "nodes"
"""The accounts: that of the streams and services, and that of nodes. A user's credentials carry the name as a tag."""
JETSTREAM_API = "$JS.API"
NODES_API = "cotenant.log"
"""Prefix by which nodes reach their part of JetStream: their own account has no JetStream and would refuse the request."""
_BEGIN = "-----BEGIN NATS USER JWT-----"


class AccessError(Exception):
    """Credentials or a CA cannot be used; the text states which file, and why."""


class _UserClaims(msgspec.Struct):
    tags: tuple[str, ...] = ()


class _Claims(msgspec.Struct):
    name: str = ""
    sub: str = ""
    nats: _UserClaims = msgspec.field(default_factory=_UserClaims)


class Access(msgspec.Struct, frozen=True):
    """Files of one user. `NOBODY` has none: for servers without accounts."""

    credentials: Path | None = None
    ca: Path | None = None

    def __bool__(self) -> bool:
        return self.credentials is not None or self.ca is not None

    @property
    def api(self) -> str:
        """The prefix of requests to JetStream. Raises AccessError."""
        return NODES_API if NODES in self._claims().nats.tags else JETSTREAM_API

    def options(self) -> dict[str, Any]:
        """Return the options of a connection. Raises AccessError."""
        found: dict[str, Any] = {}
        if self.credentials is not None:
            claims = self._claims()
            found |= {"user_credentials": str(self.credentials), "inbox_prefix": f"_INBOX.{claims.name}".encode()}
        if self.ca is not None:
            try:
                found["tls"] = ssl.create_default_context(cafile=str(self.ca))
            except (OSError, ssl.SSLError) as error:
                raise AccessError(f"{self.ca}: no CA's certificate that can be used: {error}") from error
        return found

    def url(self, url: str) -> str:
        """Return the address of a server; with a CA only TLS is used."""
        return f"tls://{url.rpartition('://')[2]}" if self.ca is not None else url

    def _claims(self) -> _Claims:
        if self.credentials is None:
            return _Claims()
        return _claims_of(self.credentials)


def _claims_of(credentials: Path) -> _Claims:
    try:
        lines = credentials.read_text().split("\n")
        token = lines[lines.index(_BEGIN) + 1]
        payload = token.split(".")[1]
        return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (OSError, ValueError, IndexError, msgspec.MsgspecError) as error:
        raise AccessError(
            f"{credentials}: no credentials that can be used ({error}): `cotenant admin nats-credentials` makes them"
        ) from error


NOBODY = Access()
