"""Tokens of service accounts: JWTs that this cell signs.

In: the read model, the cell's keys, a token. Out: a new token for an account, or the account that a token is of. Claims are
Kubernetes'; a token is valid while its account, and what it is bound to (a pod or a node), exist with the same uid, until it
expires. Their existence is checked at each request, the signature once (`VerifiedTokens`). Source: Kubernetes'
serviceaccount package (claims.go, jwt.go) and TokenRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cotenant.api.snapshots import Snapshot
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant.kinds.service_accounts import SERVICE_ACCOUNTS
from cotenant_gateway.access.tokens.account_keys import AccountKeys
from cotenant_gateway.access.tokens.bearer_tokens import TokenError, VerifiedTokens
from cotenant_gateway.access.tokens.jwts import claims_of, issuer_of, key_of, seconds_of, texts_of
from cotenant_gateway.access.users import User, account_groups, account_name, authenticated
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import unavailable

CLAIM = "kubernetes.io"
BINDABLE = {"Pod": PODS, "Node": NODES}
_EXTRA = "authentication.kubernetes.io/"


class _Named(msgspec.Struct, frozen=True):
    name: str
    uid: str


class _Private(msgspec.Struct, frozen=True):
    """The claim `kubernetes.io`."""

    namespace: str
    serviceaccount: _Named
    pod: _Named | None = None
    node: _Named | None = None


class AccountToken(msgspec.Struct, frozen=True):
    """A token whose signature was checked."""

    user: User
    audiences: tuple[str, ...]
    of: _Private

    def still_exists(self, core: GatewayCore) -> bool:
        """Return whether the account, and what the token is bound to, still exist."""
        of = self.of
        if not _is(core.get(SERVICE_ACCOUNTS, of.namespace, of.serviceaccount.name), of.serviceaccount.uid):
            return False
        if of.pod is not None:
            # A node beside a pod says where the pod was when the token was made; the token is bound to the pod.
            return _is(core.get(PODS, of.namespace, of.pod.name), of.pod.uid)
        return of.node is None or _is(core.get(NODES, "", of.node.name), of.node.uid)


class AccountTokens:
    """Makes and verifies the tokens of a cell's service accounts."""

    def __init__(
        self,
        keys: AccountKeys,
        issuers: Sequence[str],
        audiences: Sequence[str],
        core: Callable[[], GatewayCore],
        now: Callable[[], float],
        new_id: Callable[[], str],
        is_loaded: Callable[[], bool] = lambda: True,
    ) -> None:
        """`issuers`: the first is that of new tokens, all are accepted; `audiences`: of the API; `now`: seconds since 1970."""
        self.keys = keys
        self.issuer = issuers[0]
        self._issuers = frozenset(issuers)
        self.audiences = tuple(audiences)
        self._core = core
        self._now = now
        self._new_id = new_id
        self._is_loaded = is_loaded
        self._verified: VerifiedTokens[AccountToken] = VerifiedTokens()

    def look(self) -> bool:
        """Read the keys again where they have changed: tokens of keys that are gone end."""
        changed = self.keys.look()
        if changed:
            self._verified.clear()
        return changed

    def issued(self, account: Snapshot, audiences: Sequence[str], seconds: int, bound: Snapshot | None) -> tuple[str, float]:
        """Return a new token for an account, and when it expires."""
        namespace, name = account.address.namespace, account.address.name
        now = int(self._now())
        private: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": name, "uid": account.uid}}
        if bound is not None:
            private[bound.address.kind.singular] = {"name": bound.address.name, "uid": bound.uid}
            node = bound.fields.get("spec.nodeName", "") if bound.address.kind is PODS else ""
            at = self._core().get(NODES, "", node) if node else None
            if at is not None:
                private["node"] = {"name": node, "uid": at.uid}
        expires = now + seconds
        claims = {
            "iss": self.issuer,
            "sub": account_name(namespace, name),
            "aud": list(audiences),
            "exp": expires,
            "iat": now,
            "nbf": now,
            "jti": self._new_id(),
            CLAIM: private,
        }
        return self.keys.signing.signed(claims), float(expires)

    def known(self, token_digest: bytes) -> User | None:
        """Return the token's user, if its signature was checked before."""
        found = self._verified.get(token_digest, self._now())
        if found is None:
            return None
        if not found.still_exists(self._core()):
            self._verified.forget(token_digest)
            return None
        return found.user

    def verified(self, token: str, token_digest: bytes) -> User | None:
        """Check a token for this API. Raises TokenError."""
        if issuer_of(token) not in self._issuers:
            return None
        found, until = self._checked(token, self.audiences)
        self._verified.put(token_digest, until, found)
        return found.user

    def of_audience(self, token: str, audiences: Sequence[str]) -> AccountToken | None:
        """Return the claims of a token for another audience than this API; None where it is not one of these. Raises
        TokenError."""
        return self._checked(token, audiences)[0] if issuer_of(token) in self._issuers else None

    def _checked(self, token: str, audiences: Sequence[str]) -> tuple[AccountToken, float]:
        if not self._is_loaded():
            raise unavailable("the read model is still loading: whether the token's service account exists is not known yet")
        key = key_of(token, self.keys.verifying)
        if key is None:
            raise TokenError("it is not signed by a key of this cell")
        claims = claims_of(token, key, self._now())
        common = tuple(each for each in texts_of(claims, "aud") if each in audiences)
        if not common:
            raise TokenError(f"it is meant for none of {', '.join(audiences)[:500]} (aud)")
        of = _private(claims)
        if claims.get("sub") != account_name(of.namespace, of.serviceaccount.name):
            raise TokenError("its claims sub and kubernetes.io name different service accounts")
        user = authenticated(
            account_name(of.namespace, of.serviceaccount.name),
            account_groups(of.namespace),
            of.serviceaccount.uid,
            _extra(of, claims.get("jti")),
        )
        found = AccountToken(user, common, of)
        if not found.still_exists(self._core()):
            raise TokenError("its service account, or the pod or node that it is bound to, does not exist any more")
        return found, seconds_of(claims, "exp")


def _private(claims: Mapping[str, Any]) -> _Private:
    try:
        return msgspec.convert(claims.get(CLAIM), _Private)
    except msgspec.ValidationError as error:
        raise TokenError(f"its claim {CLAIM} cannot be read: {error}") from error


def _is(snapshot: Snapshot | None, uid: str) -> bool:
    return snapshot is not None and snapshot.uid == uid


def _extra(of: _Private, token_id: object) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    if isinstance(token_id, str) and token_id:
        found[f"{_EXTRA}credential-id"] = (f"JTI={token_id}",)
    for kind, bound in (("pod", of.pod), ("node", of.node)):
        if bound is not None:
            found[f"{_EXTRA}{kind}-name"] = (bound.name,)
            found[f"{_EXTRA}{kind}-uid"] = (bound.uid,)
    return found
