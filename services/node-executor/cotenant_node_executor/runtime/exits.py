"""Notification of the end of many processes at once: pidfds in one epoll set.

In: process ids, each with a key. Out: the keys whose process has ended, without checking the others. If a pidfd cannot be
opened (the process has gone, a limit of open files) the caller polls. Bound: one descriptor a watched process.
"""

from __future__ import annotations

import os
import select
from collections.abc import Hashable
from contextlib import suppress
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Exits(Generic[K]):
    """The processes that are watched."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[int, K] = {}
        self._descriptors: dict[K, int] = {}

    def fileno(self) -> int:
        """A descriptor that is readable while a watched process has ended and `ended` has not reported it."""
        return self._epoll.fileno()

    def watch(self, key: K, pid: int) -> bool:
        """Watch a process; False if it cannot be watched. The process may have ended and its number been reused by now:
        a caller that did not start it checks it once more."""
        self.forget(key)
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        self._keys[descriptor], self._descriptors[key] = key, descriptor
        self._epoll.register(descriptor, select.EPOLLIN)
        return True

    def watches(self, key: K) -> bool:
        """Whether the process of this key is watched."""
        return key in self._descriptors

    def ended(self) -> list[K]:
        """The keys whose processes have ended since the last call; they are not watched any more."""
        if not self._keys:
            return []
        found = [self._keys[descriptor] for descriptor, _ in self._epoll.poll(0, len(self._keys))]
        for key in found:
            self.forget(key)
        return found

    def forget(self, key: K) -> None:
        """Stop watching the process of this key."""
        descriptor = self._descriptors.pop(key, None)
        if descriptor is not None:
            del self._keys[descriptor]
            with suppress(OSError):
                self._epoll.unregister(descriptor)
            os.close(descriptor)
