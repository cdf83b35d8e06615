"""NATS' tokens (JWT version 2): claims of operators, accounts and users, signed with their issuer's key (Ed25519, nkeys).

In: keys and claims. Out: the token's text, and `.creds` files. Source: nats-io/jwt, v2. The package nats-jwt would do
this too, but its authors call it untested, and it brings four further packages.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import nkeys

from cotenant_console.nats_access.roles import NatsRole, Shared

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_NO_LIMITS = {"subs": -1, "data": -1, "payload": -1}
_ACCOUNT_LIMITS = {**_NO_LIMITS, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
_JETSTREAM = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1, "max_ack_pending": -1}
RESPONSE_NANOSECONDS = 60 * 10**9
"""How long a request may be answered."""
OPERATOR, ACCOUNT, USER = nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER


class KeyPair:
    """A key pair: of an operator, an account, a signing key of one, or a user."""

    def __init__(self, seed: bytes) -> None:
        self.seed = seed
        self._pair = nkeys.from_seed(bytearray(seed))
        self.public = str(self._pair.public_key.decode())

    @classmethod
    def new(cls, kind: int) -> KeyPair:
        """Make one of a kind: OPERATOR, ACCOUNT, USER."""
        return cls(bytes(nkeys.encode_seed(os.urandom(32), kind)))

    def sign(self, text: bytes) -> bytes:
        """Return the signature."""
        return bytes(self._pair.sign(text))


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def token(issuer: KeyPair, subject: str, name: str, claims: Mapping[str, Any], issued_at: int | None = None) -> str:
    """Return a signed token."""
    body: dict[str, Any] = {
        "iat": int(time.time()) if issued_at is None else issued_at,
        "iss": issuer.public,
        "jti": "",
        "name": name,
        "sub": subject,
        "nats": {**claims, "version": 2},
    }
    body["jti"] = base64.b32encode(hashlib.sha256(msgspec.json.encode(body)).digest()).decode().rstrip("=")
    text = _encoded(msgspec.json.encode(_HEADER)) + b"." + _encoded(msgspec.json.encode(body))
    return (text + b"." + _encoded(issuer.sign(text))).decode()


def operator_token(operator: KeyPair, system_account: str) -> str:
    """Return the operator's own token."""
    return token(operator, operator.public, "cotenant", {"type": "operator", "system_account": system_account})


def account_token(
    operator: KeyPair,
    account: str,
    name: str,
    *,
    roles: Mapping[str, NatsRole] = {},
    exports: Sequence[Shared] = (),
    imports: Mapping[str, Sequence[Shared]] = {},
    revoked: Mapping[str, int] = {},
    jetstream: bool = False,
) -> str:
    """Return an account's token. `roles`: by the public key that signs their users. `imports`: by the exporting account.
    `revoked`: until when users' tokens are invalid, by their public keys."""
    claims: dict[str, Any] = {
        "type": "account",
        "limits": {**_ACCOUNT_LIMITS, **(_JETSTREAM if jetstream else {})},
        "signing_keys": [{"kind": "user_scope", "key": key, "role": role.name, "template": _template(role)}
                         for key, role in roles.items()],
        "exports": [_export(shared) for shared in exports],
        "imports": [_import(shared, giver) for giver, given in imports.items() for shared in given],
        "default_permissions": {"pub": {}, "sub": {}},
    }
    if revoked:
        claims["revocations"] = dict(revoked)
    return token(operator, account, name, claims)


def _template(role: NatsRole) -> dict[str, Any]:
    found: dict[str, Any] = {"pub": {"allow": list(role.publish)}, "sub": {"allow": list(role.subscribe)}, **_NO_LIMITS}
    if role.responds:
        found["resp"] = {"max": 1, "ttl": RESPONSE_NANOSECONDS}
    return found


def _export(shared: Shared) -> dict[str, Any]:
    streamed = {"response_type": "Stream"} if shared.streamed else {}
    return {"name": shared.subject, "subject": shared.subject, "type": shared.kind, **streamed}


def _import(shared: Shared, giver: str) -> dict[str, Any]:
    local = {"local_subject": shared.local} if shared.local else {}
    return {"name": shared.subject, "subject": shared.subject, "account": giver, "type": shared.kind, **local}


def user_token(signer: KeyPair, account: str, user: str, name: str, tags: Sequence[str], *, scoped: bool = True) -> str:
    """Return a user's token. With `scoped` the user has the permissions of the signing key's role, else all."""
    claims: dict[str, Any] = {"type": "user", "issuer_account": account, "tags": list(tags), "pub": {}, "sub": {}}
    if not scoped:
        del claims["issuer_account"]
        claims |= _NO_LIMITS
    return token(signer, user, name, claims)


def credentials_text(user_jwt: str, user: KeyPair) -> str:
    """Return the contents of a `.creds` file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        "Whoever has this file is this user: keep it to its owner.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
