"""Notifications of directories created or removed in a watched directory.

In: directories. Out: those in which something changed since the last call. Files, renames and deeper levels are
ignored. `lost`: the kernel's queue overflowed, so everything must be read again.

Bound: one watch a directory; the kernel's own bound is fs.inotify.max_user_watches.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

IN_CREATE, IN_DELETE, IN_DELETE_SELF = 0x100, 0x200, 0x400
IN_Q_OVERFLOW, IN_IGNORED, IN_ONLYDIR = 0x4000, 0x8000, 0x01000000
_HEAD = struct.Struct("iIII")
READ_BYTES = 1 << 16


class DirectoryWatches:
    """The watched directories, by path."""

    def __init__(self) -> None:
        """Raises OSError where this process may have no inotify instance."""
        import ctypes  # costs a megabyte of memory, which only a node of kubelet's needs

        self._ctypes = ctypes
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify_init1")
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self.lost = False

    def _checked(self, result: int, what: str) -> int:
        if result < 0:
            number = self._ctypes.get_errno()
            raise OSError(number, os.strerror(number), what)
        return result

    def fileno(self) -> int:
        """A descriptor that is readable while `changed` has something to report."""
        return self._descriptor

    def __contains__(self, path: str) -> bool:
        return path in self._watches

    def watch(self, path: str) -> None:
        """Watch a directory from now on. Raises OSError where it is gone, may not be read, or there are too many."""
        if path in self._watches:
            return
        mask = IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_ONLYDIR
        watch = self._checked(self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask), path)
        self._watches[path], self._paths[watch] = watch, path

    def forget(self, path: str) -> None:
        """Stop watching it."""
        watch = self._watches.pop(path, None)
        if watch is not None:
            self._paths.pop(watch, None)
            self._libc.inotify_rm_watch(self._descriptor, watch)  # fails where the directory is gone, which ended the watch

    def changed(self) -> set[str]:
        """The directories that changed since the last call. One that was removed itself is watched no longer."""
        found: set[str] = set()
        while True:
            try:
                content = os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                return found
            offset = 0
            while offset < len(content):
                watch, mask, _, length = _HEAD.unpack_from(content, offset)
                offset += _HEAD.size + length
                if mask & IN_Q_OVERFLOW:
                    self.lost = True
                path = self._paths.get(watch)
                if path is None:
                    continue
                found.add(path)
                if mask & IN_IGNORED:
                    del self._paths[watch]
                    if self._watches.get(path) == watch:
                        del self._watches[path]

    def close(self) -> None:
        """Stop all watches."""
        with suppress(OSError):
            os.close(self._descriptor)
        self._paths.clear()
        self._watches.clear()
