"""The console's credentials for NATS.

Those that the environment names (COTENANT_NATS_CREDS, COTENANT_NATS_CA), else those of the data folder, where `cotenant up` or
`cotenant admin nats-credentials` made them; else none.
"""

from __future__ import annotations

import os
from pathlib import Path

from cotenant.log.nats.access import Access
from cotenant_console.nats_access.keys import SUFFIX

PKI_FOLDER = "pki"
NATS_FOLDER = "nats"
CA_FILE = "ca.crt"


def keys_folder(folder: Path) -> Path:
    """Where the keys of NATS are in a data folder."""
    return folder / PKI_FOLDER / NATS_FOLDER


def access_of(folder: Path, user: str, url: str = "") -> Access:
    """Return a user's credentials for the servers at these addresses."""
    credentials, ca = os.environ.get("COTENANT_NATS_CREDS"), os.environ.get("COTENANT_NATS_CA")
    own, own_ca = keys_folder(folder) / f"{user}{SUFFIX}", folder / PKI_FOLDER / CA_FILE
    return Access(
        Path(credentials) if credentials else own if own.exists() else None,
        Path(ca) if ca else own_ca if url.startswith("tls://") and own_ca.exists() else None,
    )
