"""Names of containers by their ids, from the links that kubelet keeps to their logs.

In: the folder /var/log/containers, where kubelet links `<pod>_<namespace>_<container>-<id>.log` when a container has started.
Out: the name of an id. The folder is read while an id is unknown, at most once every READ_NS: a link comes a moment after its
container's group. An id without a link for GIVEN_UP_NS, as the pause container's, is no longer looked up. If the folder is
missing or not readable only the names of the pods' statuses are known.

Bound: MOST_LINKS of the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

READ_NS = 500_000_000
GIVEN_UP_NS = 30_000_000_000
MOST_LINKS = 20_000


class ContainerNames:
    """The links as last read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, str] = {}
        self._read_ns: int | None = None
        self._since: dict[str, int] = {}
        """When each unknown id was first looked for. Bound: the ids of the last call."""

    def names(self) -> Mapping[str, str]:
        """Names by id."""
        return self._names

    def look_for(self, ids: Iterable[str], now_ns: int) -> bool:
        """Read the folder where an id is unknown; whether names came."""
        self._since = {each: self._since.get(each, now_ns) for each in ids if each not in self._names}
        looked_for = any(now_ns - since < GIVEN_UP_NS for since in self._since.values())
        if not looked_for or (self._read_ns is not None and now_ns - self._read_ns < READ_NS):
            return False
        self._read_ns = now_ns
        try:
            with os.scandir(self._folder) as entries:
                found = dict(filter(None, (_link(entry.name) for entry in islice(entries, MOST_LINKS))))
        except OSError:
            found = {}
        changed = found != self._names
        self._names = found
        return changed


def _link(name: str) -> tuple[str, str] | None:
    """Id and container's name of a link; None for anything else. Neither has an underscore, and no id a dash."""
    stem, dot, kind = name.rpartition(".")
    parts = stem.split("_")
    container, dash, number = parts[-1].rpartition("-")
    return (number, container) if dot and kind == "log" and len(parts) == 3 and dash and container and number else None
