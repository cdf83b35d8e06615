"""Kinds and objects from what a user typed.

In: `pods`, `pod/web`, `pods,nodes`, `pod web db`. Out: kinds with names. A kind that the console does not know is looked up in
the server's discovery documents, so that kinds of a newer server work as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from cotenant.api.kinds import Kind
from cotenant.kinds.registry import REGISTRY
from cotenant_console.api.client import Client, Document, Json, list_at, text_at


@dataclass(frozen=True)
class Target:
    """One kind and, if the user named one, the object's name."""

    kind: Kind
    name: str = ""


def resolve_kind(client: Client, typed: str) -> Kind:
    """The kind a user means. Raises a click error that explains how to list all kinds."""
    found = REGISTRY.find(typed) or next((kind for kind in discover(client) if kind.is_named(typed)), None)
    if found is None:
        raise click.ClickException(f'the server doesn\'t have a resource type "{typed}"')
    return found


def resolve_type(client: Client, api_version: str, kind_name: str) -> Kind | None:
    """The kind of a manifest, None if the server does not know it."""
    known = REGISTRY.type(api_version, kind_name)
    if known is not None:
        return known
    wanted = (api_version, kind_name)
    return next((kind for kind in discover(client) if (kind.api_version, kind.kind) == wanted), None)


def resolve_targets(client: Client, arguments: Sequence[str]) -> list[Target]:
    """`pods`, `pods,nodes`, `pod web db`, `pod/web node/a` as targets."""
    if not arguments:
        raise click.UsageError("name a kind, such as pods, nodes or elasticquotas")
    if any("/" in argument for argument in arguments):
        targets = []
        for argument in arguments:
            typed, slash, name = argument.partition("/")
            if not slash or not name:
                raise click.UsageError(f"{argument!r}: with KIND/NAME every argument must have that form")
            targets.append(Target(resolve_kind(client, typed), name))
        return targets
    kinds = [resolve_kind(client, typed) for typed in arguments[0].split(",") if typed]
    names = arguments[1:]
    if not names:
        return [Target(kind) for kind in kinds]
    return [Target(kind, name) for kind in kinds for name in names]


def discover(client: Client) -> tuple[Kind, ...]:
    """Every kind that the server's discovery documents list."""
    versions = [("", text) for text in _texts(client.get("/api"), "versions")]
    for group in list_at(client.get("/apis"), "groups"):
        versions += [(text_at(group, "name"), text_at(version, "version")) for version in list_at(group, "versions")]
    kinds: list[Kind] = []
    for group_name, version in versions:
        path = f"/apis/{group_name}/{version}" if group_name else f"/api/{version}"
        kinds.extend(_kinds_of(client.get(path), group_name, version))
    return tuple(kinds)


def _kinds_of(resources: Document, group: str, version: str) -> Iterator[Kind]:
    for resource in list_at(resources, "resources"):
        plural = text_at(resource, "name")
        if plural and "/" not in plural:
            short = tuple(_texts(resource, "shortNames"))
            namespaced = text_at(resource, "namespaced") == "true"
            yield Kind(group, version, plural, text_at(resource, "kind"), namespaced, short)


def _texts(document: Json, key: str) -> list[str]:
    return [item for item in list_at(document, key) if isinstance(item, str)]
