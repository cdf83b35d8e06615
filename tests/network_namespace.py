"""A network namespace of a test's own, for fixed ports and for changes of the network. Needs root and iproute2."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

USABLE = os.geteuid() == 0 and shutil.which("ip") is not None


@contextlib.contextmanager
def network_namespace(purpose: str) -> Iterator[tuple[str, ...]]:
    """Yield the words that run a command within. Its loopback is up."""
    name = f"cotenant-{purpose}-{os.getpid()}"
    within = ("ip", "netns", "exec", name)
    subprocess.run(("ip", "netns", "add", name), check=True)
    try:
        subprocess.run((*within, "ip", "link", "set", "lo", "up"), check=True)
        yield within
    finally:
        subprocess.run(("ip", "netns", "del", name), check=True)
