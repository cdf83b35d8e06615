"""The name under which this host is a node.

In: the host's name. Out: a name that no other `cotenant up` on this host uses: two of them on two data folders are
two nodes, for two executors of one name would look after the same control groups. The claim is a socket name of the
kernel's abstract namespace: it goes when the process goes, and leaves no file.
"""

from __future__ import annotations

import socket
from types import TracebackType

MAX_TRIES = 100
MAX_LABEL = 63


class NoNodeNameError(Exception):
    """Every name that could be tried is taken."""


def host_node_name() -> str:
    """This host's name as a node name: lower case, within DNS rules."""
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "-.") else "-" for char in socket.gethostname())
    return kept.lower()[: MAX_LABEL - 4].strip("-.") or "localhost"


class NodeName:
    """Holds a node name for as long as the block lasts: the wanted one, or that with a number behind it."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._claim: socket.socket | None = None

    def __enter__(self) -> str:
        for number in range(1, MAX_TRIES + 1):
            name = self._wanted if number == 1 else f"{self._wanted}-{number}"
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0cotenant/node/{name}")
            except OSError:
                claim.close()
                continue
            self._claim = claim
            return name
        raise NoNodeNameError(f"{MAX_TRIES} nodes named {self._wanted} run on this host already")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._claim is not None:
            self._claim.close()
