"""The keys and credentials of one cell's NATS, in a folder readable by its owner only.

In: the folder (`pki/nats` below the data folder). Out: `accounts.conf`, which each nats-server includes and which holds no
secret, and a `.creds` file for each user. Keys are kept from one call to the next, so distributed credentials keep
working; `accounts.conf` is written again each time, with the permissions of this version (`roles`). A new user is known to
servers at once; one that is revoked, when they have read `accounts.conf` again.

    operator.nk, system.nk, cell.nk, nodes.nk    keys of the operator and the accounts; operator.jwt: its token
    roles/<role>.nk                              signs the users of a role
    issued.json, revoked.json                    public keys of users, by name; when they were revoked
    <user>.creds, node-<node>.creds              a process' credentials
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from cotenant.log.nats.access import CELL, NODES
from cotenant.model.subjects import encode_token
from cotenant_console.api.credentials import write_private
from cotenant_console.nats_access.roles import (
    ADMINISTRATOR,
    FOR_CELL,
    FOR_NODES,
    NATS_ROLES,
    NODE,
    OF_NODES,
    READER,
    SERVICE_ROLES,
    SIMULATED_NODES,
    SYSTEM,
)
from cotenant_console.nats_access.tokens import (
    ACCOUNT,
    OPERATOR,
    USER,
    KeyPair,
    account_token,
    credentials_text,
    operator_token,
    user_token,
)

T = TypeVar("T")

ACCOUNTS_FILE = "accounts.conf"
SUFFIX = ".creds"
OF_EVERY_CELL = (*(role.name for role in SERVICE_ROLES), READER, ADMINISTRATOR, SIMULATED_NODES, SYSTEM)
"""Users that are always created."""


class NatsKeysError(Exception):
    """The folder of NATS' keys cannot be used; the text states why and what to do."""


class NatsKeys:
    """Made by `prepared_keys`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._issued: dict[str, list[str]] = self._read("issued.json", dict[str, list[str]])
        self._revoked: dict[str, int] = self._read("revoked.json", dict[str, int])
        self._operator = self._key("operator.nk", OPERATOR)
        self._accounts = {name: self._key(f"{name}.nk", ACCOUNT) for name in (SYSTEM, CELL, NODES)}
        self._signers = {name: self._key(f"roles/{name}.nk", ACCOUNT) for name in NATS_ROLES}

    @property
    def accounts_file(self) -> Path:
        """The file that the servers include."""
        return self.folder / ACCOUNTS_FILE

    @property
    def cell_account(self) -> str:
        """The public key of the account that the streams are in."""
        return self._accounts[CELL].public

    def credentials(self, user: str) -> Path:
        """Where a user's credentials are."""
        return self.folder / f"{user}{SUFFIX}"

    def write_accounts(self) -> None:
        """Write the servers' include file, with the permissions of this version and the revoked users."""
        public = {name: key.public for name, key in self._accounts.items()}
        of_cell = {self._signers[name].public: role for name, role in NATS_ROLES.items() if role.account == CELL}
        of_nodes = {self._signers[role.name].public: role for role in OF_NODES}
        tokens = {
            SYSTEM: account_token(self._operator, public[SYSTEM], SYSTEM, revoked=self._revoked),
            CELL: account_token(
                self._operator,
                public[CELL],
                CELL,
                roles=of_cell,
                exports=FOR_NODES,
                imports={public[NODES]: FOR_CELL},
                revoked=self._revoked,
                jetstream=True,
            ),
            NODES: account_token(
                self._operator,
                public[NODES],
                NODES,
                roles=of_nodes,
                exports=FOR_CELL,
                imports={public[CELL]: FOR_NODES},
                revoked=self._revoked,
            ),
        }
        preload = "\n".join(f"  {public[name]}: {text}  # {name}" for name, text in tokens.items())
        write_private(
            self.accounts_file,
            "# Written by cotenant: who may use this cell's NATS. It holds no secret. Read again on SIGHUP.\n"
            f"operator: {self._operator_token(public[SYSTEM])}\n"
            f"system_account: {public[SYSTEM]}\n"
            "resolver: MEMORY\n"
            f"resolver_preload {{\n{preload}\n}}\n",
        )

    def issue(self, user: str) -> Path:
        """Return the credentials of a service, or of another user that every cell has; made where they are missing."""
        return self._issue(user, user, user)

    def issue_node(self, node: str) -> Path:
        """Return the credentials of a node, made where they are missing. Raises NatsKeysError."""
        if "/" in node or not node.isprintable() or not node:
            raise NatsKeysError(f"--node {node!r}: not a valid node name")
        return self._issue(f"{NODE}-{encode_token(node)}", encode_token(node), NODE)

    def _issue(self, file: str, name: str, role: str) -> Path:
        path = self.credentials(file)
        if path.exists():
            return path
        user = KeyPair.new(USER)
        if role == SYSTEM:
            account = self._accounts[SYSTEM]
            text = user_token(account, account.public, user.public, name, (), scoped=False)
        else:
            account = self._accounts[NATS_ROLES[role].account]
            text = user_token(self._signers[role], account.public, user.public, name, (NATS_ROLES[role].account,))
        self._issued.setdefault(file, []).append(user.public)
        self._write("issued.json", self._issued)
        write_private(path, credentials_text(text, user))
        return path

    def revoke(self, user: str) -> int:
        """Revoke all credentials that were issued under a name (a service's, or a node's), and remove its file; returns how
        many there were. Servers refuse them once they have read `accounts.conf` again. Raises NatsKeysError."""
        file = user if user in self._issued else f"{NODE}-{encode_token(user)}"
        keys = self._issued.pop(file, [])
        if not keys:
            raise NatsKeysError(f"{user}: no credentials were issued under this name; {self.folder / 'issued.json'} lists them")
        now = int(time.time())
        self._revoked |= dict.fromkeys(keys, now)
        self._write("revoked.json", self._revoked)
        self._write("issued.json", self._issued)
        self.credentials(file).unlink(missing_ok=True)
        self.write_accounts()
        return len(keys)

    def _operator_token(self, system_account: str) -> str:
        """Return the operator's token: always the same one, as a running server accepts no other."""
        path = self.folder / "operator.jwt"
        if not path.exists():
            write_private(path, operator_token(self._operator, system_account) + "\n")
        return path.read_text().strip()

    def _key(self, name: str, kind: int) -> KeyPair:
        path = self.folder / name
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, KeyPair.new(kind).seed.decode() + "\n")
        return KeyPair(path.read_text().strip().encode())

    def _read(self, name: str, kind: type[T]) -> T:
        path = self.folder / name
        return msgspec.json.decode(path.read_bytes() if path.exists() else b"{}", type=kind)

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        write_private(self.folder / name, msgspec.json.format(msgspec.json.encode(content), indent=1).decode() + "\n")


def prepared_keys(folder: Path) -> NatsKeys:
    """Return the keys in a folder, made where they are missing, with the credentials of every service. Raises NatsKeysError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        keys = NatsKeys(folder)
        for user in OF_EVERY_CELL:
            keys.issue(user)
        keys.write_accounts()
    except Exception as error:
        if isinstance(error, (OSError, ValueError, msgspec.MsgspecError)) or type(error).__module__.startswith("nkeys"):
            cure = "move that folder away to create new ones; every client then needs new credentials"
            raise NatsKeysError(f"the keys of NATS in {folder} cannot be used: {error}; {cure}") from error
        raise
    return keys
