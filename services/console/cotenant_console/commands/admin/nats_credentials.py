"""`cotenant admin nats-credentials`: accounts, credentials and certificates of NATS.

In: a folder, names of nodes. Out, below `pki` in it, as `cotenant up` makes it: `nats/accounts.conf` for the servers,
`nats/<service>.creds`, `nats/node-<node>.creds`, and with --host the servers' certificate. Existing files are kept. --revoke
invalidates credentials once the servers have read accounts.conf again.
"""

from __future__ import annotations

from pathlib import Path

import click

from cotenant_console.nats_access.finding import keys_folder
from cotenant_console.nats_access.keys import NatsKeysError, prepared_keys
from cotenant_console.nats_access.roles import table
from cotenant_console.pki.identity import GATEWAY_NAMES, IdentityError, nats_certificate


@click.command("nats-credentials")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="A node whose executor needs credentials.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A NATS server's name or address: creates a certificate.")
@click.option("--revoke", "revoked", multiple=True, metavar="NAME", help="A node or service whose credentials are revoked.")
@click.option("--roles", is_flag=True, help="Print who may publish and subscribe to what, and exit.")
def command(
    folder: Path, nodes: tuple[str, ...], hosts: tuple[str, ...], revoked: tuple[str, ...], roles: bool
) -> None:
    """Create keys, accounts and credentials of NATS in FOLDER/pki; existing files are kept."""
    if roles:
        click.echo(table())
        return
    try:
        keys = prepared_keys(keys_folder(folder))
        for name in revoked:
            count = keys.revoke(name)
            click.echo(f"{name}: {count} credential{'' if count == 1 else 's'} revoked")
        if revoked:
            # The services' own stay valid: a service that was revoked gets new ones.
            keys = prepared_keys(keys_folder(folder))
            click.echo(f"give each nats-server {keys.accounts_file} and reload it: nats-server --signal reload")
        for node in nodes:
            click.echo(f"node {node}: {keys.issue_node(node)}")
        click.echo(f"servers include {keys.accounts_file}; services use --nats-creds {keys.credentials('SERVICE')}")
        if hosts:
            made = nats_certificate(folder, tuple(dict.fromkeys((*GATEWAY_NAMES, *hosts))))
            click.echo(f"servers use tls {{ cert_file: {made.certificate}, key_file: {made.key}, ca_file: {made.ca} }}")
    except (NatsKeysError, IdentityError, OSError) as error:
        raise click.ClickException(str(error)) from error
