"""`cotenant delete`: end objects and wait until they are gone.

In: kinds and names, a label selector, or manifests. Out: one line an object; a pod is gone when its processes are,
so the command waits (bounded by `--timeout`) unless `--no-wait` is given.
"""

from __future__ import annotations

import time

import click

from cotenant.api.kinds import Kind
from cotenant_console.api.client import Client, Document, StatusError, list_at, text_at
from cotenant_console.api.connection import with_client, with_namespace
from cotenant_console.api.resolve import resolve_targets, resolve_type
from cotenant_console.commands.apply import in_namespace
from cotenant_console.manifests.documents import ManifestError, read_manifests

POLL_SECONDS = 0.2


@click.command("delete")
@click.argument("arguments", nargs=-1, metavar="KIND NAME... | KIND/NAME...")
@click.option("-f", "--filename", "sources", multiple=True, metavar="FILE|DIR|-", help="Delete the objects in these manifests.")
@with_namespace
@click.option("-l", "--selector", default="", help="Delete the objects with these labels.")
@click.option("--all", "every", is_flag=True, help="Delete all objects of the kind in the namespace.")
@click.option("--grace-period", type=int, default=None, help="Seconds that a pod has to end by itself.")
@click.option("--wait/--no-wait", default=True, help="Wait until the objects are gone.")
@click.option("--timeout", type=float, default=120.0, show_default=True, help="Seconds to wait at most.")
@click.option("--ignore-not-found", is_flag=True, help="Do not fail for objects that do not exist.")
@with_client
def command(
    client: Client,
    arguments: tuple[str, ...],
    sources: tuple[str, ...],
    namespace: str,
    selector: str,
    every: bool,
    grace_period: int | None,
    wait: bool,
    timeout: float,
    ignore_not_found: bool,
) -> None:
    """Delete objects by name, by label or by manifest."""
    victims = _from_manifests(client, sources, namespace) if sources else []
    if arguments:
        victims += _from_arguments(client, arguments, namespace, selector, every)
    elif not sources:
        raise click.UsageError("name what to delete: KIND NAME, KIND/NAME or -f")
    options: Document | None = None
    if grace_period is not None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_period}
    failed, leaving = 0, []
    for kind, scope, name in victims:
        try:
            answer = client.delete(kind.path(scope, name), options)
        except StatusError as error:
            if error.code != 404 or not ignore_not_found:
                failed += 1
                click.echo(str(error), err=True)
            continue
        click.echo(f'{kind.qualified} "{name}" deleted')
        leaving.append((kind, scope, name, text_at(answer, "metadata", "uid")))
    if wait and not _wait_until_gone(client, leaving, timeout):
        failed += 1
    if failed:
        raise click.exceptions.Exit(1)


def _from_manifests(client: Client, sources: tuple[str, ...], namespace: str) -> list[tuple[Kind, str, str]]:
    """The objects of the manifests in reverse order, so that objects that others refer to are deleted last."""
    victims = []
    try:
        manifests = [manifest for source in sources for manifest in read_manifests(source)]
    except ManifestError as error:
        raise click.ClickException(str(error)) from error
    for manifest in reversed(manifests):
        api_version, kind_name = text_at(manifest.document, "apiVersion"), text_at(manifest.document, "kind")
        kind = resolve_type(client, api_version, kind_name)
        if kind is None:
            raise click.ClickException(f'{manifest.place}: no matches for kind "{kind_name}" in "{api_version}"')
        own = text_at(manifest.document, "metadata", "namespace")
        document = in_namespace(manifest.document, kind, own or namespace)
        victims.append((kind, text_at(document, "metadata", "namespace"), text_at(document, "metadata", "name")))
    return victims


def _from_arguments(
    client: Client, arguments: tuple[str, ...], namespace: str, selector: str, every: bool
) -> list[tuple[Kind, str, str]]:
    victims = []
    for target in resolve_targets(client, arguments):
        if target.name:
            victims.append((target.kind, namespace, target.name))
            continue
        if not selector and not every:
            raise click.UsageError(f"name the {target.kind.plural} to delete, or give -l or --all")
        query = {"labelSelector": selector} if selector else {}
        for item in list_at(client.get(target.kind.path(namespace), query), "items"):
            victims.append(
                (target.kind, text_at(item, "metadata", "namespace"), text_at(item, "metadata", "name"))
            )
    return victims


def _wait_until_gone(client: Client, leaving: list[tuple[Kind, str, str, str]], timeout: float) -> bool:
    """Wait for each object to be gone, or replaced by another of its name. False after the timeout."""
    deadline = time.monotonic() + timeout
    for kind, scope, name, uid in leaving:
        while _is_there(client, kind, scope, name, uid):
            if time.monotonic() > deadline:
                click.echo(f"error: timed out waiting for {kind.qualified}/{name} to be gone", err=True)
                return False
            time.sleep(POLL_SECONDS)
    return True


def _is_there(client: Client, kind: Kind, scope: str, name: str, uid: str) -> bool:
    try:
        present = client.get(kind.path(scope, name))
    except StatusError as error:
        if error.code == 404:
            return False
        raise
    return not uid or text_at(present, "metadata", "uid") == uid
