"""Notifications of stalls: PSI triggers on pressure files.

In: pressure files, each with a trigger: an amount of stalled time within a window. Out: the files whose trigger fired, as soon
as the kernel sees it (every tenth of the window, while there is pressure), at most once a window. A kernel refuses windows
below 2 s to a process without CAP_SYS_RESOURCE: there the file's total is polled every POLL_SECONDS instead. A file that
cannot be read has no trigger, and its reader relies on the samples.

A thread waits for the triggers and raises an eventfd: the kernel reports each event once, to the first poll, and an event loop
with a nested set of descriptors would lose it.

Bound: one descriptor a file, MAX_TRIGGERS files, one thread from the first trigger on.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from cotenant_node_executor.sampling.own_priority import hurry
from cotenant_node_executor.sampling.pressure.stalls import total_us

MAX_TRIGGERS = 128
POLL_SECONDS = 0.05


class Trigger(Struct, frozen=True):
    """`stall_us` of waiting by some task within `window_us`. The kernel takes windows of 0.5 to 10 s."""

    stall_us: int
    window_us: int

    @property
    def text(self) -> bytes:
        """As the kernel reads it; /proc/pressure swallows the last byte."""
        return f"some {self.stall_us} {self.window_us}\0".encode()


class _Polled(Struct):
    """A file whose total is polled instead: stalled µs at the start of its window, and when it may fire again."""

    descriptor: int
    trigger: Trigger
    total_us: int
    since: float

    def fires(self, now: float) -> bool:
        """Poll the file. Raises OSError if its group is gone."""
        total = total_us(self.descriptor)
        if total - self.total_us >= self.trigger.stall_us:
            fires = now - self.since >= 0
            self.total_us, self.since = total, now + self.trigger.window_us / 1e6 if fires else self.since
            return fires
        if now - self.since >= self.trigger.window_us / 1e6:
            self.total_us, self.since = total, now
        return False


class PressureTriggers:
    """The triggers of one node."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        """Guards the tables and the set of fired files, which the thread reads and writes."""
        self._descriptors: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._polled: dict[str, _Polled] = {}
        self._fired: set[str] = set()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Makes the thread read its tables again."""
        self._ending = False
        self._epoll.register(self._wake, select.EPOLLIN)
        self._thread: threading.Thread | None = None
        self.refused: dict[str, str] = {}
        """Files without a trigger, and why. Bound: the requested files."""

    def fileno(self) -> int:
        """A descriptor that is readable while a trigger has fired and `fired` has not reported it."""
        return self._event

    @property
    def polled(self) -> frozenset[str]:
        """The files that are polled, as the kernel refuses a trigger on them."""
        return frozenset(self._polled)

    def watch(self, wanted: Mapping[str, Trigger]) -> None:
        """Set triggers on these files and no others."""
        for path in [path for path in self._descriptors if path not in wanted]:
            self._drop(path)
        self.refused = {path: why for path, why in self.refused.items() if path in wanted}
        for path, trigger in wanted.items():
            if path not in self._descriptors and path not in self.refused:
                self._add(path, trigger)

    def _add(self, path: str, trigger: Trigger) -> None:
        if len(self._descriptors) >= MAX_TRIGGERS:
            self.refused[path] = f"there are {MAX_TRIGGERS} triggers"
            return
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.refused[path] = os.strerror(error.errno or 0)
            return
        polled = None
        try:
            os.write(descriptor, trigger.text)
            self._epoll.register(descriptor, select.EPOLLPRI)
        except OSError:
            try:
                polled = _Polled(descriptor, trigger, total_us(descriptor), time.monotonic())
            except (OSError, ValueError) as error:
                os.close(descriptor)
                self.refused[path] = str(error)
                return
        with self._lock:
            self._descriptors[path], self._paths[descriptor] = descriptor, path
            if polled is not None:
                self._polled[path] = polled
                os.eventfd_write(self._wake, 1)
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait, name="pressure-triggers", daemon=True)
            self._thread.start()

    def _wait(self) -> None:
        """Wait for triggers until the end."""
        hurry()
        while True:
            events = self._epoll.poll(POLL_SECONDS if self._polled else None)
            with self._lock:
                if self._ending:
                    return
                self._poll_files()
                for descriptor, event in events:
                    if descriptor == self._wake:
                        os.eventfd_read(descriptor)
                        continue
                    path = self._paths.get(descriptor)
                    if path is None:
                        continue
                    if event & select.EPOLLERR:
                        # The group has gone; the file is closed when it is no longer requested.
                        self._epoll.unregister(descriptor)
                    else:
                        self._fired.add(path)
                if self._fired:
                    os.eventfd_write(self._event, 1)

    def _poll_files(self) -> None:
        now = time.monotonic()
        for path, polled in tuple(self._polled.items()):
            try:
                if polled.fires(now):
                    self._fired.add(path)
            except (OSError, ValueError):
                del self._polled[path]

    def fired(self) -> frozenset[str]:
        """The files whose trigger fired since the last call."""
        with self._lock:
            if not self._fired:
                return frozenset()
            with suppress(BlockingIOError):
                os.eventfd_read(self._event)
            found, self._fired = frozenset(self._fired), set()
        return found

    def close(self) -> None:
        """Remove all triggers, and end the thread."""
        self.watch({})
        if self._thread is not None:
            with self._lock:
                self._ending = True
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            self._thread, self._ending = None, False

    def _drop(self, path: str) -> None:
        with self._lock:
            descriptor = self._descriptors.pop(path)
            del self._paths[descriptor]
            self._fired.discard(path)
            self._polled.pop(path, None)
            with suppress(OSError):
                self._epoll.unregister(descriptor)
            os.close(descriptor)
