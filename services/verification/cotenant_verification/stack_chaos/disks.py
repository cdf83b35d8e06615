"""The servers' disks: a small file system in memory for each, which a fault can fill.

In: the folder of a server's store. Out: a mounted tmpfs of DISK_BYTES, in a mount namespace that only this process and those
that it starts are in. That needs root; without it there are no such faults.

What lies on these disks ends with this process: `keep` copies it to the folder below.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

CLONE_NEWNS = 0x0002_0000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x4_0000
DISK_BYTES = 640 << 20
STORE_BYTES = DISK_BYTES // 2
"""What a server may take for its streams: the rest is for what it writes beside them."""
BALLAST = "ballast"
CHUNK_BYTES = 1 << 16
_LIBC = ctypes.CDLL(None, use_errno=True)


def mount_privately() -> bool:
    """Leave the mount namespace of the machine, before any thread is started. False where this is not permitted."""
    if _LIBC.unshare(CLONE_NEWNS) != 0:
        return False
    _called(_LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    return True


class ServerDisk:
    """A server's disk. Mounted at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / BALLAST
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = f"size={DISK_BYTES},mode=0700".encode()
        _called(_LIBC.mount(b"tmpfs", bytes(folder), b"tmpfs", MS_NOSUID | MS_NODEV, options), str(folder))

    @property
    def free_bytes(self) -> int:
        """What still fits on it."""
        return shutil.disk_usage(self.folder).free

    def fill(self) -> None:
        """Write a file until nothing more fits; again where others have made room."""
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(CHUNK_BYTES))
            except OSError:
                return

    def empty(self) -> None:
        """Remove that file."""
        self._ballast.unlink(missing_ok=True)

    def close(self, *, keep: bool) -> None:
        """Unmount it. `keep`: what was on it stays in the folder."""
        self.empty()
        beside = self.folder.with_name(self.folder.name + ".kept")
        if keep:
            shutil.copytree(self.folder, beside)
        _called(_LIBC.umount(bytes(self.folder)), str(self.folder))
        if keep:
            self.folder.rmdir()
            beside.rename(self.folder)


def _called(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
