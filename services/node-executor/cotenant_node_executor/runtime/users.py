"""A separate user for each pod that names none, so that pods cannot signal, trace or read one another.

In: a pod's uid, the pods' folders. Out: a number of a range, remembered in the pod's folder. Where the executor is not root,
every pod runs as its user.

Bound: the range has as many users as pods may be on a node; beyond that `UsersExhaustedError`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from zlib import crc32

USERS = range(61_184, 65_520)
"""systemd's range of dynamic users: no distribution assigns them otherwise."""
FILE = "user"


class UsersExhaustedError(OSError):
    """Every user of the range belongs to a pod."""


def own_user(state: Path, uid: str, users: range = USERS) -> int:
    """Return the user of a pod: the one that its folder names, else one that no other pod's folder names."""
    file = state / uid / FILE
    known = _read(file)
    if known is not None:
        return known
    taken = {user for other in state.glob(f"*/{FILE}") if (user := _read(other)) is not None}
    start = crc32(uid.encode())
    for offset in range(len(users)):
        user = users[(start + offset) % len(users)]
        if user not in taken:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.write_text(f"{user}\n", encoding="ascii")
            return user
    raise UsersExhaustedError(f"all {len(users)} users for pods are in use")


def _read(file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text(encoding="ascii"))
    return None


def has_own_users() -> bool:
    """Whether pods can have users of their own: only root can switch users."""
    return os.geteuid() == 0
