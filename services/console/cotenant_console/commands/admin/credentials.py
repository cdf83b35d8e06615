"""`cotenant admin credentials`: the files that `cotenant up` creates in its data folder, for a standalone gateway.

In: a folder, names and addresses of the gateway. Out: a CA, the gateway's certificate, an administrator's token and kubeconfig.
"""

from __future__ import annotations

from pathlib import Path

import click

from cotenant_console.api.credentials import KUBECONFIG_FILE
from cotenant_console.pki.identity import ADMINISTRATOR, GATEWAY_NAMES, IdentityError, prepared


@click.command("credentials")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name or address by which clients reach the gateway.")
@click.option("--url", default="https://127.0.0.1:8001", show_default=True, help="The gateway's address, for the kubeconfig.")
def command(folder: Path, hosts: tuple[str, ...], url: str) -> None:
    """Create certificates and an administrator's token in FOLDER/pki, and FOLDER/kubeconfig; valid existing files are kept."""
    try:
        identity = prepared(folder, tuple(dict.fromkeys((*GATEWAY_NAMES, *hosts))))
        identity.write_kubeconfig(folder / KUBECONFIG_FILE, url.rstrip("/"))
    except (IdentityError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"kubeconfig of {ADMINISTRATOR}: {folder / KUBECONFIG_FILE}")
    click.echo(f"start the gateway with: {' '.join(identity.gateway_flags())}")
