"""Which LOG a node followed last, in a file of its data folder.

An executor ends pods that have no placement. On an empty LOG, on that of another cell, and on one that was restored from an old
backup, pods that should run have none. So the executor stores when its LOG was created and how far it was read; where LOG is
another one, or ends earlier, or the file is damaged, and pods run here, it keeps them until an operator adopts LOG (`cotenant
admin adopt`).

In: the identity of LOG. Out: why it is not the known one, or nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from cotenant.log.contract import LogIdentity

logger = logging.getLogger(__name__)


class KnownLog:
    """The file. Without a path nothing is remembered, and every LOG is accepted (simulated nodes)."""

    def __init__(self, path: Path | None, existing_pods: Callable[[], Collection[str]] = tuple) -> None:
        """`existing_pods`: the pods on this machine; if there are none, any LOG is accepted."""
        self._path = path
        self._existing_pods = existing_pods
        self._known: LogIdentity | None = None
        self._damage = ""
        """Why the file cannot be read: which LOG was followed is not known then, but there was one."""
        if path is not None and path.exists():
            try:
                self._known = msgspec.json.decode(path.read_bytes(), type=LogIdentity)
            except (OSError, msgspec.MsgspecError) as error:
                self._damage = f"{path}, which says which LOG this node followed, cannot be read: {error}"
                logger.warning("%s", self._damage)

    def why_unknown(self, found: LogIdentity) -> str:
        """Return why this LOG is not the known one; empty if it is, or if none is known."""
        known = self._known
        if self._path is None or not (known or self._damage) or not self._existing_pods():
            return ""
        if known is None:
            return self._damage
        if found.created != known.created:
            return f"LOG was created at {found.created}; this node followed the one created at {known.created}"
        if found.last < known.last:
            return f"LOG ends at {found.last}; this node had followed it up to {known.last}"
        return ""

    @property
    def last(self) -> int:
        """The last sequence read of the known LOG, 0 if none is known."""
        return self._known.last if self._known is not None else 0

    def remember(self, found: LogIdentity) -> None:
        """Accept this LOG as the node's own. A file that cannot be written is reported and retried with the next call."""
        if self._path is None or found == self._known:
            return
        draft = self._path.with_suffix(".new")
        try:
            draft.write_bytes(msgspec.json.encode(found))
            draft.replace(self._path)
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._path, error)
            return
        self._known, self._damage = found, ""

    def followed(self, sequence: int) -> None:
        """Remember how far LOG was followed."""
        if self._known is not None and sequence > self._known.last:
            self.remember(msgspec.structs.replace(self._known, last=sequence))
