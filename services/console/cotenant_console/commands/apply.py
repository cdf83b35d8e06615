"""`cotenant apply`: create new objects, update changed ones, report each.

In: manifests. Out: one line an object (`pod/web created|configured|unchanged`). A refused document is shown with file,
line and field; the others are still applied, and the exit status is 1. A member that its kind does not have refuses a
document, as with kubectl.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from cotenant.api.kinds import Kind
from cotenant_console.api.client import Client, Document, StatusError, text_at
from cotenant_console.api.connection import DEFAULT_NAMESPACE, with_client
from cotenant_console.api.resolve import resolve_type
from cotenant_console.manifests.documents import Manifest, ManifestError, read_manifests
from cotenant_console.manifests.three_way import annotated, apply_patch

CONFLICT_ATTEMPTS = 5
SIMULATION = "simulation.cotenant.io/v1alpha1"
FIRST_KINDS = (
    "Namespace",
    "PriorityClass",
    "RuntimeClass",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ElasticQuota",
    "ElasticQuotaProfile",
    "ConfigMap",
    "ClusterColocationProfile",
)
"""Within one call these are applied first, so that objects that refer to them find them; the rest keeps its order."""


@click.command("apply")
@click.option("-f", "--filename", "sources", multiple=True, required=True, metavar="FILE|DIR|-", help="Manifests.")
@click.option("-n", "--namespace", default=None, help="Namespace of objects that name none.")
@with_client
def command(client: Client, sources: tuple[str, ...], namespace: str | None) -> None:
    """Create or change objects from manifests."""
    try:
        manifests = [manifest for source in sources for manifest in read_manifests(source)]
    except ManifestError as error:
        raise click.ClickException(str(error)) from error
    if not manifests:
        raise click.ClickException("no objects passed to apply")
    failed = 0
    for manifest in ordered(manifests):
        if text_at(manifest.document, "apiVersion") == SIMULATION:
            click.echo(f"{manifest.source}: not applied, it is for `cotenant simulate`", err=True)
            continue
        try:
            click.echo(apply_one(client, manifest, namespace))
        except StatusError as error:
            failed += 1
            click.echo(refusal(manifest, error), err=True)
    if failed:
        raise click.exceptions.Exit(1)


def ordered(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Manifests, with those first that others refer to."""
    rank = {kind: index for index, kind in enumerate(FIRST_KINDS)}
    return sorted(manifests, key=lambda manifest: rank.get(text_at(manifest.document, "kind"), len(rank)))


def apply_one(client: Client, manifest: Manifest, namespace: str | None) -> str:
    """Apply one document and return kubectl's line about it."""
    api_version, kind_name = text_at(manifest.document, "apiVersion"), text_at(manifest.document, "kind")
    kind = resolve_type(client, api_version, kind_name)
    if kind is None:
        message = f'no matches for kind "{kind_name}" in version "{api_version}"'
        raise StatusError(404, "NotFound", message)
    document = in_namespace(manifest.document, kind, namespace)
    name, scope = text_at(document, "metadata", "name"), text_at(document, "metadata", "namespace")
    shown = f"{kind.qualified}/{name}"
    if not name:
        created = client.create(kind.path(scope), annotated(document), strict=True)
        return f"{kind.qualified}/{text_at(created, 'metadata', 'name')} created"
    for attempt in range(CONFLICT_ATTEMPTS):
        try:
            try:
                stored = client.get(kind.path(scope, name))
            except StatusError as error:
                if error.code != 404:
                    raise
                client.create(kind.path(scope), annotated(document), strict=True)
                return f"{shown} created"
            patch = apply_patch(document, stored)
            if not patch:
                return f"{shown} unchanged"
            client.merge_patch(kind.path(scope, name), patch, strict=True)
        except StatusError as error:
            # The object changed between the read and the write: read again and merge again.
            if error.code != 409 or attempt == CONFLICT_ATTEMPTS - 1:
                raise
            continue
        return f"{shown} configured"
    raise AssertionError("the last attempt returns or raises")


def in_namespace(document: Document, kind: Kind, namespace: str | None) -> Document:
    """The document in its namespace: its own, else `-n`, else `default`. A contradiction with `-n` is an error."""
    if not kind.namespaced:
        return document
    own = text_at(document, "metadata", "namespace")
    if own and namespace and own != namespace:
        raise StatusError(
            400,
            "BadRequest",
            f'the namespace from the provided object "{own}" does not match the namespace "{namespace}"',
        )
    metadata = document.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    return {**document, "metadata": {**fields, "namespace": own or namespace or DEFAULT_NAMESPACE}}


def refusal(manifest: Manifest, error: StatusError) -> str:
    """Why a document was refused: its place and title, the message, and each field with its line."""
    if not error.causes:
        return f"{manifest.place}: {manifest.title}: {error.message}"
    lines = [f"{manifest.place}: {manifest.title} is refused ({error.reason}):"]
    for cause in error.causes:
        line = manifest.line_of(cause.field_path)
        where = f"{manifest.source}:{line}: " if line else ""
        lines.append(f"  {where}{cause.field_path}: {cause.message}")
    return "\n".join(lines)
