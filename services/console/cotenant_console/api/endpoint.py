"""The gateway's address, and the credentials for it.

The first of: `--server` (with `--token`, `--certificate-authority`), `--kubeconfig`, COTENANT_SERVER (with COTENANT_TOKEN,
COTENANT_CERTIFICATE_AUTHORITY), the data folder that a running `cotenant up` wrote to (`--data`, then COTENANT_DATA, then the
user's own state folder), KUBECONFIG. An address without credentials gets those of the data folder where they are for that
address, else the kubeconfig's.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from cotenant_console.api.credentials import (
    KUBECONFIG_FILE,
    NO_CREDENTIALS,
    Credentials,
    CredentialsError,
    Server,
    read_kubeconfig,
)

ENDPOINT_FILE = "endpoint.json"


class EndpointUnknownError(Exception):
    """No server was named and no `cotenant up` runs on this data folder."""


@dataclass(frozen=True)
class Endpoint:
    """The addresses of one running stack, and the client's credentials."""

    api_url: str
    nats_url: str = ""
    credentials: Credentials = NO_CREDENTIALS

    @property
    def server(self) -> Server:
        """The gateway."""
        return Server(self.api_url, self.credentials)


@dataclass(frozen=True)
class ServerOptions:
    """The user's choice of server. Empty: none."""

    server: str = ""
    token: str = ""
    certificate_authority: str = ""
    kubeconfig: str = ""
    data: str = ""


def data_folder(explicit: str | None = None) -> Path:
    """The data folder: the one named, else COTENANT_DATA, else `cotenant` in XDG_STATE_HOME (`~/.local/state`)."""
    chosen = explicit or os.environ.get("COTENANT_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    state_home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state_home) / "cotenant"


def read_endpoint(folder: Path) -> Endpoint | None:
    """The addresses written by the `cotenant up` that runs on `folder`, or None if there is none. Raises EndpointUnknownError,
    CredentialsError."""
    try:
        written = json.loads((folder / ENDPOINT_FILE).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EndpointUnknownError(f"{folder / ENDPOINT_FILE} cannot be read: {error}") from error
    try:
        credentials = read_kubeconfig(folder / KUBECONFIG_FILE).credentials
    except FileNotFoundError:
        credentials = NO_CREDENTIALS
    return Endpoint(str(written["api"]), str(written["nats"]), credentials)


def write_endpoint(folder: Path, endpoint: Endpoint) -> None:
    """Write the addresses at once and whole: a reader sees the old file or the new one."""
    target = folder / ENDPOINT_FILE
    draft = target.with_suffix(".json.new")
    draft.write_text(json.dumps({"api": endpoint.api_url, "nats": endpoint.nats_url}, indent=2) + "\n")
    draft.replace(target)


def find_endpoint(chosen: ServerOptions = ServerOptions()) -> Endpoint:
    """The stack to talk to. Raises EndpointUnknownError, which says what to do, if no address is configured; CredentialsError.
    """
    written = read_endpoint(data_folder(chosen.data))
    named = chosen.server or (not chosen.kubeconfig and os.environ.get("COTENANT_SERVER")) or ""
    if named:
        url = (named if "://" in named else f"https://{named}").rstrip("/")
        return Endpoint(url, written.nats_url if written else "", _credentials(chosen, url, written))
    if written is not None and not chosen.kubeconfig:
        return Endpoint(written.api_url, written.nats_url, _own(chosen) or written.credentials)
    kubeconfig = _kubeconfig(chosen)
    if kubeconfig is None:
        raise EndpointUnknownError(
            f"no server: nothing runs on the data folder {data_folder(chosen.data)}. "
            "Start it with `cotenant up`, or name a server with --server, --kubeconfig or COTENANT_SERVER."
        )
    return Endpoint(kubeconfig.url, "", _own(chosen) or kubeconfig.credentials)


def _credentials(chosen: ServerOptions, url: str, written: Endpoint | None) -> Credentials:
    own = _own(chosen)
    if own is not None:
        return own
    if written is not None and written.api_url == url and not chosen.kubeconfig:
        return written.credentials
    kubeconfig = _kubeconfig(chosen)
    return kubeconfig.credentials if kubeconfig is not None else NO_CREDENTIALS


def _own(chosen: ServerOptions) -> Credentials | None:
    """The credentials that options or the environment give; None where there are none."""
    token = chosen.token or os.environ.get("COTENANT_TOKEN", "")
    file = chosen.certificate_authority or os.environ.get("COTENANT_CERTIFICATE_AUTHORITY", "")
    if not token and not file:
        return None
    try:
        return Credentials(ca=Path(file).read_text() if file else "", token=token)
    except OSError as error:
        raise CredentialsError(f"{file}: {error}") from error


def _kubeconfig(chosen: ServerOptions) -> Server | None:
    named = chosen.kubeconfig or os.environ.get("KUBECONFIG", "")
    if not named:
        return None
    try:
        return read_kubeconfig(Path(named).expanduser())
    except FileNotFoundError as error:
        raise CredentialsError(f"{named}: {error.strerror}") from error
