"""Names and ports that one `cotenant up` holds against all others on this host.

In: the preferred name or port. Out: that, or the next free one: two stacks on two data folders are two nodes
(two executors of one name would manage the same control groups) with two sets of ports. A claim is a socket
name of the kernel's abstract namespace: it is released when the process ends in any way, and leaves no file.
"""

from __future__ import annotations

import socket
from types import TracebackType

from cotenant_console.up.nats_server import port_is_free

MAX_TRIES = 100
MAX_LABEL = 63


class NothingLeftError(Exception):
    """Every name or port that was tried is taken."""


def host_node_name() -> str:
    """This host's name as a node name: lower case, within DNS rules."""
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "-.") else "-" for char in socket.gethostname())
    return kept.lower()[: MAX_LABEL - 4].strip("-.") or "localhost"


class Claims:
    """Holds the claimed names and ports until the block ends."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for claim in self._held:
            claim.close()
        self._held.clear()

    def node(self, wanted: str) -> str:
        """The wanted node name, or that with a number behind it."""
        for number in range(1, MAX_TRIES + 1):
            name = wanted if number == 1 else f"{wanted}-{number}"
            if self._claim(f"node/{name}"):
                return name
        raise NothingLeftError(f"{MAX_TRIES} nodes named {wanted} run on this host already")

    def port(self, preferred: int, exactly: bool = False) -> int:
        """The preferred loopback port, or (unless `exactly` that one is wanted) the next free one above it."""
        for port in range(preferred, preferred + (1 if exactly else MAX_TRIES)):
            if port < 65536 and port_is_free(port) and self._claim(f"port/{port}"):
                return port
        tried = f"port {preferred}" if exactly else f"every port from {preferred} to {preferred + MAX_TRIES - 1}"
        raise NothingLeftError(f"{tried} is in use: choose another with --port or --nats-port")

    def _claim(self, what: str) -> bool:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0cotenant/{what}")
        except OSError:
            claim.close()
            return False
        self._held.append(claim)
        return True
