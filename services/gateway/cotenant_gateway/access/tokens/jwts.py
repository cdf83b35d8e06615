"""JSON Web Tokens: keys, and checking a token's signature and times.

In: PEM texts, JWK sets, tokens. Out: keys by their id, claims, or a TokenError. Each key has one algorithm, which follows
from the key and never from the token: `none`, and HMAC with a public key as its secret, are refused. The id of a key is
Kubernetes': the SHA-256 of its public half (DER). Source: RFC 7515, 7517, 7519; Kubernetes' serviceaccount package.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.types import Options

from cotenant_gateway.access.tokens.bearer_tokens import TokenError
from cotenant_gateway.access.tokens.files import AccessFileError, read_text

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
MAX_KEYS = 32
MIN_RSA_BITS = 2048
SKEW_SECONDS = 60.0
"""Allowed clock skew of whoever wrote `nbf`."""
RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ALGORITHMS = (*RSA_ALGORITHMS, *_CURVES.values())
_PEM = re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
_UNCHECKED: Options = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
"""Claims that are checked here: against the service's own clock, and by their source's rules."""


class VerificationKey(msgspec.Struct, frozen=True):
    """A public key, and the algorithms that its tokens may be signed by."""

    kid: str
    algorithms: tuple[str, ...]
    public: Any

    @property
    def jwk(self) -> dict[str, object]:
        """The key as a JWK set has it."""
        of_kind = RSAAlgorithm if isinstance(self.public, rsa.RSAPublicKey) else ECAlgorithm
        made: dict[str, object] = dict(of_kind.to_jwk(self.public, as_dict=True))
        made.pop("key_ops", None)
        return {"use": "sig", **made, "kid": self.kid, "alg": self.algorithms[0]}


class SigningKey(msgspec.Struct, frozen=True):
    """A private key and its public half."""

    private: Any
    key: VerificationKey

    def signed(self, claims: Mapping[str, object]) -> str:
        """Return a token with these claims."""
        return jwt.encode(dict(claims), self.private, algorithm=self.key.algorithms[0], headers={"kid": self.key.kid})


class _Payload(msgspec.Struct):
    iss: str = ""


_PAYLOAD = msgspec.json.Decoder(_Payload)


def issuer_of(token: str) -> str:
    """Return the issuer that a token names; empty if it is no JWT. Nothing is checked."""
    parts = token.split(".")
    if len(parts) != 3:
        return ""
    try:
        return _PAYLOAD.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))).iss
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return ""


def key_of(token: str, keys: Sequence[VerificationKey]) -> VerificationKey | None:
    """Return the key that a token names; if it names none, the only key. Raises TokenError."""
    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise TokenError(f"its header cannot be read: {error}") from error
    if kid is None:
        return keys[0] if len(keys) == 1 else None
    return next((key for key in keys if key.kid == kid), None)


def claims_of(token: str, key: VerificationKey, now: float) -> dict[str, Any]:
    """Return the claims of a token that this key has signed and that is valid now. Raises TokenError."""
    try:
        claims: dict[str, Any] = jwt.decode(token, key.public, algorithms=list(key.algorithms), options=_UNCHECKED)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise TokenError(f"it is not signed by the key {key.kid[:64]!r}: {error}") from error
    if now >= seconds_of(claims, "exp"):
        raise TokenError("it has expired: get a new one")
    if "nbf" in claims and now + SKEW_SECONDS < seconds_of(claims, "nbf"):
        raise TokenError("it is not valid yet (nbf)")
    return claims


def seconds_of(claims: Mapping[str, Any], name: str) -> float:
    """Return a claim that is a time, in seconds since 1970. Raises TokenError."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) >= 2**53:
        raise TokenError(f"its claim {name} is not a time")
    return float(value)


def texts_of(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a claim that is a text or a list of texts; empty where it is absent. Raises TokenError."""
    value = claims.get(name)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TokenError(f"its claim {name} is neither a text nor a list of texts")
    return tuple(value)


def key_id(public: PublicKey) -> str:
    """Return the id of a key, as Kubernetes derives it."""
    text = hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _algorithm(public: object) -> str:
    """Return the algorithms of a key. Raises ValueError."""
    if isinstance(public, rsa.RSAPublicKey):
        if public.key_size < MIN_RSA_BITS:
            raise ValueError(f"an RSA key has {MIN_RSA_BITS} bits at least, this one has {public.key_size}")
        return RSA_ALGORITHMS[0]
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _CURVES:
        return _CURVES[public.curve.name]
    raise ValueError("expected a key of RSA, or of the curve P-256, P-384 or P-521")


def read_signing_key(path: Path) -> SigningKey:
    """Return the private key of a file (PEM). Raises AccessFileError."""
    text = read_text(path, private=True)
    try:
        private = load_pem_private_key(text.encode(), password=None)
        public = private.public_key()
        algorithm = _algorithm(public)
        assert isinstance(public, PublicKey)
        return SigningKey(private, VerificationKey(key_id(public), (algorithm,), public))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise AccessFileError(f"{path}: this is not a private key that can sign tokens (PEM): {error}") from error


def read_keys(path: Path) -> tuple[VerificationKey, ...]:
    """Return the keys of a file, public ones or private ones (PEM, one behind the other). Raises AccessFileError."""
    found: dict[str, VerificationKey] = {}
    try:
        for block in _PEM.finditer(read_text(path, private=False)):
            pem = block.group().encode()
            private = "PRIVATE" in block.group(1)
            public = load_pem_private_key(pem, password=None).public_key() if private else load_pem_public_key(pem)
            algorithm = _algorithm(public)
            assert isinstance(public, PublicKey)
            kid = key_id(public)
            found[kid] = VerificationKey(kid, (algorithm,), public)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise AccessFileError(f"{path}: a key cannot be read (PEM): {error}") from error
    if not found:
        raise AccessFileError(f"{path}: there is no key in it (PEM)")
    if len(found) > MAX_KEYS:
        raise AccessFileError(f"{path}: {len(found)} keys; at most {MAX_KEYS} are taken")
    return tuple(found.values())


class _JwkSet(msgspec.Struct):
    keys: list[dict[str, Any]] = []


_JWK_SET = msgspec.json.Decoder(_JwkSet)


def keys_of_set(body: bytes, allowed: Sequence[str]) -> tuple[VerificationKey, ...]:
    """Return the keys of a JWK set that may sign by one of the allowed algorithms; those that cannot be used are left out.
    Raises ValueError."""
    found: list[VerificationKey] = []
    for jwk in _JWK_SET.decode(body).keys[:MAX_KEYS]:
        key = _of_jwk(jwk, allowed)
        if key is not None:
            found.append(key)
    return tuple(found)


def _of_jwk(jwk: Mapping[str, Any], allowed: Sequence[str]) -> VerificationKey | None:
    if jwk.get("kty") not in ("RSA", "EC") or jwk.get("use", "sig") != "sig":
        return None
    try:
        made = (RSAAlgorithm if jwk["kty"] == "RSA" else ECAlgorithm).from_jwk(dict(jwk))
        public = made if isinstance(made, PublicKey) else made.public_key()
        usual = _algorithm(public)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, OverflowError, UnsupportedAlgorithm):
        return None
    possible = RSA_ALGORITHMS if isinstance(public, rsa.RSAPublicKey) else (usual,)
    stated = jwk.get("alg")
    algorithms = tuple(each for each in possible if each in allowed and stated in (None, each))
    kid = jwk.get("kid")
    return VerificationKey(kid if isinstance(kid, str) else "", algorithms, public) if algorithms else None
