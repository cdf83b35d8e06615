"""Bearer tokens from a file, as kube-apiserver's `--token-auth-file` has them.

One line a token: `token,user,uid,"group1,group2"`; uid and groups may be left out. Empty lines and lines that begin with `#`
are skipped. The file is read again when it has changed, so that a token is taken away without a restart. Tokens are kept as
their SHA-256 digests.
"""

from __future__ import annotations

import csv
import hashlib
import logging
import stat
from collections.abc import Mapping
from pathlib import Path

from cotenant_gateway.access.users import User, authenticated

logger = logging.getLogger(__name__)

MAX_BYTES = 8 << 20
MIN_TOKEN = 16
"""Characters. Shorter ones can be guessed."""


class TokenFileError(Exception):
    """The file cannot be used; the text states where and why."""


def read_tokens(path: Path) -> Mapping[bytes, User]:
    """Return the users of a file by the digests of their tokens. Raises TokenFileError."""
    try:
        mode, size = path.stat().st_mode, path.stat().st_size
        if stat.S_IMODE(mode) & 0o077:
            raise TokenFileError(f"{path}: others than its owner can read it: chmod 600 {path}")
        if size > MAX_BYTES:
            raise TokenFileError(f"{path}: {size} bytes; at most {MAX_BYTES} are read")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenFileError(f"{path}: {error}") from error
    found: dict[bytes, User] = {}
    lines = [line if line.strip() and not line.startswith("#") else "" for line in text.splitlines()]
    for number, fields in enumerate(csv.reader(lines, skipinitialspace=True), 1):
        if not fields:
            continue
        token, name, uid, groups = (*(field.strip() for field in fields), "", "", "", "")[:4]
        if len(token) < MIN_TOKEN:
            raise TokenFileError(f"{path}:{number}: a token has {MIN_TOKEN} characters at least")
        if not name:
            raise TokenFileError(f"{path}:{number}: the user's name is missing: token,user,uid,\"group1,group2\"")
        key = digest(token)
        if key in found:
            raise TokenFileError(f"{path}:{number}: the token of {found[key].name!r} stands here again")
        found[key] = authenticated(name, tuple(group.strip() for group in groups.split(",") if group.strip()), uid)
    return found


def digest(token: str) -> bytes:
    """Return what a token is known by."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class TokenFile:
    """The tokens of a file. One that has become unreadable keeps what it held, and says so in the log."""

    def __init__(self, path: Path) -> None:
        """Read it. Raises TokenFileError."""
        self._path = path
        self._seen = self._mark()
        self._users = read_tokens(path)

    def user(self, token_digest: bytes) -> User | None:
        """Return whose token this is."""
        return self._users.get(token_digest)

    def look(self) -> bool:
        """Read the file again where it has changed; returns whether the tokens may differ now."""
        mark = self._mark()
        if mark == self._seen:
            return False
        self._seen = mark
        try:
            self._users = read_tokens(self._path)
        except TokenFileError as error:
            logger.error("%s; the tokens read before stay valid", error)
            return False
        logger.info("%s: read again, %d tokens", self._path, len(self._users))
        return True

    def _mark(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0, 0
        return found.st_mtime_ns, found.st_size, found.st_ino
