"""Bearer tokens from a file, as kube-apiserver's `--token-auth-file` has them.

One line a token: `token,user,uid,"group1,group2"`; uid and groups may be left out. Empty lines and lines that begin with `#`
are skipped. The file is read again when it has changed, so that a token is revoked without a restart. Tokens are kept as
their SHA-256 digests.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Mapping
from pathlib import Path

from cotenant_gateway.access.tokens.bearer_tokens import digest
from cotenant_gateway.access.tokens.files import AccessFileError, FileMarks, read_text
from cotenant_gateway.access.users import User, authenticated

logger = logging.getLogger(__name__)

MIN_TOKEN = 16
"""Characters. Shorter ones can be guessed."""


def read_tokens(path: Path) -> Mapping[bytes, User]:
    """Return the users of a file by the digests of their tokens. Raises AccessFileError."""
    text = read_text(path, private=True)
    try:
        return _users(path, text)
    except csv.Error as error:
        raise AccessFileError(f"{path}: {error}") from error


def _users(path: Path, text: str) -> Mapping[bytes, User]:
    found: dict[bytes, User] = {}
    lines = [line if line.strip() and not line.startswith("#") else "" for line in text.splitlines()]
    for number, fields in enumerate(csv.reader(lines, skipinitialspace=True), 1):
        if not fields:
            continue
        token, name, uid, groups = (*(field.strip() for field in fields), "", "", "", "")[:4]
        if len(token) < MIN_TOKEN:
            raise AccessFileError(f"{path}:{number}: a token has {MIN_TOKEN} characters at least")
        if not name:
            raise AccessFileError(f'{path}:{number}: the user\'s name is missing: token,user,uid,"group1,group2"')
        key = digest(token)
        if key in found:
            raise AccessFileError(f"{path}:{number}: the token of {found[key].name!r} is listed twice")
        found[key] = authenticated(name, tuple(group.strip() for group in groups.split(",") if group.strip()), uid)
    return found


class TokenFile:
    """The tokens of a file. If it becomes unreadable, its last tokens stay valid and the process logs it."""

    def __init__(self, path: Path) -> None:
        """Read it. Raises AccessFileError."""
        self._path = path
        self._marks = FileMarks(path)
        self._users = read_tokens(path)

    def known(self, token_digest: bytes) -> User | None:
        """Return the token's user."""
        return self._users.get(token_digest)

    def verified(self, token: str, token_digest: bytes) -> User | None:
        """None: `known` finds the file's tokens without a check."""
        del token, token_digest
        return None

    def look(self) -> bool:
        """Read the file again where it has changed; returns whether the tokens may differ now."""
        if not self._marks.changed():
            return False
        try:
            self._users = read_tokens(self._path)
        except AccessFileError as error:
            logger.error("%s; the tokens read before stay valid", error)
            return False
        logger.info("%s: read again, %d tokens", self._path, len(self._users))
        return True
