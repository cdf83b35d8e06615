"""Where the gateway is.

Order: `--server`, then COTENANT_SERVER, then `endpoint.json` in the data folder that a running `cotenant up` wrote
(`--data`, then COTENANT_DATA, then the user's own state folder).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

ENDPOINT_FILE = "endpoint.json"


class EndpointUnknownError(Exception):
    """No server was named and no `cotenant up` runs on this data folder."""


@dataclass(frozen=True)
class Endpoint:
    """The addresses of one running stack."""

    api_url: str
    nats_url: str = ""


def data_folder(explicit: str | None = None) -> Path:
    """The data folder: the one named, else COTENANT_DATA, else `cotenant` in XDG_STATE_HOME (`~/.local/state`)."""
    chosen = explicit or os.environ.get("COTENANT_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    state_home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state_home) / "cotenant"


def read_endpoint(folder: Path) -> Endpoint | None:
    """The addresses written by the `cotenant up` that runs on `folder`, or None if there is none."""
    try:
        written = json.loads((folder / ENDPOINT_FILE).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EndpointUnknownError(f"{folder / ENDPOINT_FILE} cannot be read: {error}") from error
    return Endpoint(api_url=str(written["api"]), nats_url=str(written["nats"]))


def write_endpoint(folder: Path, endpoint: Endpoint) -> None:
    """Write the addresses at once and whole: a reader sees the old file or the new one."""
    target = folder / ENDPOINT_FILE
    draft = target.with_suffix(".json.new")
    draft.write_text(json.dumps({"api": endpoint.api_url, "nats": endpoint.nats_url}, indent=2) + "\n")
    draft.replace(target)


def find_endpoint(server: str | None = None, data: str | None = None) -> Endpoint:
    """The stack to talk to. Raises EndpointUnknownError, which says what to do, if no address is configured."""
    named = server or os.environ.get("COTENANT_SERVER")
    folder = data_folder(data)
    written = read_endpoint(folder)
    if named:
        url = named if "://" in named else f"http://{named}"
        return Endpoint(api_url=url.rstrip("/"), nats_url=written.nats_url if written else "")
    if written is None:
        raise EndpointUnknownError(
            f"no server: nothing runs on the data folder {folder}. "
            "Start it with `cotenant up`, or name a server with --server or COTENANT_SERVER."
        )
    return written
