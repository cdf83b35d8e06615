"""Users of an OpenID Connect issuer, by their ID tokens. Source: kube-apiserver's oidc authenticator and its flags.

In: a token, the issuer's keys, `Oidc`. Out: user name and groups from its claims, with their prefixes. Names and groups of the
system (`system:`) and of this machine (`unix:`) cannot come from an issuer: such a token is refused.

A token is checked once; the result is cached until it expires, for REMEMBERED_SECONDS at most, or until the keys change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cotenant_gateway.access.tokens.bearer_tokens import TokenError, VerifiedTokens
from cotenant_gateway.access.tokens.issuer_keys import IssuerKeys
from cotenant_gateway.access.tokens.jwts import ALGORITHMS, claims_of, issuer_of, key_of, seconds_of, texts_of
from cotenant_gateway.access.users import User, authenticated

REMEMBERED_SECONDS = 600.0
RESERVED = ("system:", "unix:")
_EMAIL = "email"


class OidcError(ValueError):
    """The flags contradict each other; the text states which and why."""


class Oidc(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the flags `--oidc-*`."""

    issuer: str
    client_id: str
    username_claim: str = "sub"
    username_prefix: str = ""
    """Empty: the issuer's URL and `#`, nothing for the claim `email`; `-`: nothing."""
    groups_claim: str = ""
    groups_prefix: str = ""
    required_claims: Mapping[str, str] = {}
    algorithms: tuple[str, ...] = ("RS256",)

    @property
    def before_names(self) -> str:
        """The prefix of a user's name."""
        if self.username_prefix:
            return "" if self.username_prefix == "-" else self.username_prefix
        return "" if self.username_claim == _EMAIL else f"{self.issuer}#"


def oidc_of(
    issuer: str, client_id: str, required_claims: Sequence[str], algorithms: Sequence[str], **others: Any
) -> Oidc | None:
    """Return the flags' values; None if they name no issuer. Raises OidcError."""
    if not issuer and not client_id:
        return None
    if not issuer or not client_id:
        raise OidcError("--oidc-issuer-url and --oidc-client-id are given together")
    if not issuer.startswith("https://"):
        raise OidcError(f"--oidc-issuer-url {issuer}: must be an https URL")
    required: dict[str, str] = {}
    for text in required_claims:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OidcError(f"--oidc-required-claim {text}: must be CLAIM=VALUE")
        required[name] = value
    unknown = [each for each in algorithms if each not in ALGORITHMS]
    if unknown or not algorithms:
        raise OidcError(f"--oidc-signing-algs {','.join(unknown)}: must be of {', '.join(ALGORITHMS)}")
    return Oidc(
        issuer=issuer, client_id=client_id, required_claims=required, algorithms=tuple(algorithms), **others
    )


def user_of_claims(oidc: Oidc, claims: Mapping[str, Any]) -> User:
    """Return the user that the claims of a verified token name. Raises TokenError."""
    if oidc.client_id not in texts_of(claims, "aud"):
        raise TokenError(f"it is not meant for {oidc.client_id!r} (aud)")
    for claim, value in oidc.required_claims.items():
        if claims.get(claim) != value:
            raise TokenError(f"its claim {claim} does not have the required value (--oidc-required-claim)")
    name = claims.get(oidc.username_claim)
    if not isinstance(name, str) or not name:
        raise TokenError(f"its claim {oidc.username_claim} is not a user name")
    if oidc.username_claim == _EMAIL and claims.get("email_verified", True) is not True:
        raise TokenError("its e-mail address is not verified (email_verified)")
    groups = texts_of(claims, oidc.groups_claim) if oidc.groups_claim else ()
    user = oidc.before_names + name
    members = tuple([oidc.groups_prefix + group for group in groups])
    for found, flag in ((user, "--oidc-username-prefix"), *((group, "--oidc-groups-prefix") for group in members)):
        if found.startswith(RESERVED):
            raise TokenError(f"{found[:100]!r} is a reserved name, which an issuer may not use ({flag})")
    return authenticated(user, members)


class OidcTokens:
    """Verifies the tokens of one issuer."""

    def __init__(self, oidc: Oidc, keys: IssuerKeys, now: Callable[[], float]) -> None:
        """`now`: seconds since 1970."""
        self.keys = keys
        self.refused = 0
        """Tokens of this issuer that were refused."""
        self._oidc = oidc
        self._now = now
        self._verified: VerifiedTokens[User] = VerifiedTokens()
        keys.on_change = self._verified.clear

    def known(self, token_digest: bytes) -> User | None:
        """Return the token's user, if the token was checked before."""
        return self._verified.get(token_digest, self._now())

    def verified(self, token: str, token_digest: bytes) -> User | None:
        """Check a token. None where it is not of this issuer. Raises TokenError."""
        if issuer_of(token) != self._oidc.issuer:
            return None
        try:
            user, until = self._checked(token)
        except TokenError:
            self.refused += 1
            raise
        self._verified.put(token_digest, until, user)
        return user

    def _checked(self, token: str) -> tuple[User, float]:
        key = key_of(token, self.keys.keys)
        if key is None:
            why = self.keys.problem or f"it is not signed by a key that {self._oidc.issuer} publishes"
            raise TokenError(why, self.keys.fetch)
        now = self._now()
        claims = claims_of(token, key, now)
        return user_of_claims(self._oidc, claims), min(seconds_of(claims, "exp"), now + REMEMBERED_SECONDS)
