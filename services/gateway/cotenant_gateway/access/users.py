"""The user of a request: name and groups, as authentication found them. Names are Kubernetes'."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MASTERS = "system:masters"
"""Its members may do everything, whatever the roles: a cell whose roles lock everybody out can still be repaired."""
AUTHENTICATED = "system:authenticated"
SERVICE_ACCOUNTS = "system:serviceaccounts"
_ACCOUNT = "system:serviceaccount:"


class User(msgspec.Struct, frozen=True):
    """A caller that has been authenticated. Every one is in the group `system:authenticated`."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}
    """Further attributes of its credentials, such as the pod that a token is bound to; authorization ignores them."""


def authenticated(
    name: str, groups: tuple[str, ...] = (), uid: str = "", extra: Mapping[str, tuple[str, ...]] | None = None
) -> User:
    """Return a user whose credentials were accepted."""
    return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))), uid, extra or {})


def account_name(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"{_ACCOUNT}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of a service account of a namespace."""
    return SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}"


def account_of(name: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account of a user name; None if it is not one's."""
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    return (namespace, account) if name.startswith(_ACCOUNT) and namespace and account else None
