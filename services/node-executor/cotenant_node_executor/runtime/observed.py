"""The states of all containers of a runtime, read again only where something may have changed.

In: attempts as they are started or found, and notifications of ended shims (`exits`). Out: states by pod and
container, and which pods' states changed. A container whose program runs and whose shim is watched is not read, nor is one
that ended without leftovers: a thousand finished pods cost nothing. All others (being started, adopted without a shim,
processes left behind) are read in every cycle.

Every LOG_INTERVAL the logs of live containers are bounded.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Set
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from cotenant_node_executor.runtime.container_files import AttemptFiles
from cotenant_node_executor.runtime.container_state import container_state, oom_kills
from cotenant_node_executor.runtime.exits import Exits
from cotenant_node_executor.runtime.interface import ContainerState
from cotenant_node_executor.runtime.log_files import bound_log
from cotenant_node_executor.targets.interface import CgroupDriver

LOG_INTERVAL = timedelta(seconds=1)

Key = tuple[str, str]
"""Uid of the pod and name of the container."""


class _Live(Struct):
    """A container that may still change."""

    files: AttemptFiles
    shim: subprocess.Popen[bytes] | None
    """Where this process started it."""
    running: bool = False
    """Its program was seen running, and its shim is watched."""


class ObservedContainers:
    """Bound: the pods of the node, and one open descriptor a running container."""

    def __init__(self, driver: CgroupDriver, group_of: Callable[[str, str], str]) -> None:
        """`group_of`: the control group of a container that exists, or empty, by uid and name."""
        self._driver = driver
        self._group_of = group_of
        self._states: dict[str, dict[str, ContainerState]] = {}
        self._live: dict[Key, _Live] = {}
        self._unread: set[Key] = set()
        """Live containers that are read by the next poll; all others run and are watched."""
        self._oom_kills: dict[str, int] = {}
        """OOM kills of a group before its newest attempt."""
        self._changed: set[str] = set()
        self._logs_at: datetime | None = None
        self.exits: Exits[Key] = Exits()

    def add_pod(self, uid: str) -> None:
        """A pod was created, possibly without containers."""
        if uid not in self._states:
            self._states[uid] = {}
            self._changed.add(uid)

    def drop_pod(self, uid: str) -> None:
        """The pod and its files are gone."""
        if self._states.pop(uid, None) is not None:
            self._changed.add(uid)
        for key in [key for key in self._live if key[0] == uid]:
            self._settle(key)

    def add(self, uid: str, container: str, files: AttemptFiles, shim: subprocess.Popen[bytes] | None = None) -> None:
        """A new attempt of a container."""
        self.add_pod(uid)
        key = (uid, container)
        self.exits.forget(key)
        self._live[key] = _Live(files, shim)
        self._unread.add(key)
        if shim is not None:
            self.exits.watch(key, shim.pid)

    def look_again(self, uid: str) -> None:
        """The pod's processes were acted on."""
        self._unread.update(key for key in self._live if key[0] == uid)

    def starting(self, group: str) -> None:
        """Remember the group's OOM kills before the attempt that begins."""
        self._oom_kills[group] = oom_kills(self._driver, group)

    def poll(self, now: datetime) -> Mapping[str, Mapping[str, ContainerState]]:
        """The states of all containers; kill processes that a program left behind, bound the logs."""
        for key in self.exits.ended():
            if key in self._live:
                self._unread.add(key)
        for key in sorted(self._unread):
            self._read(key)
        if self._logs_at is None or now - self._logs_at >= LOG_INTERVAL or now < self._logs_at:
            self._logs_at = now
            for live in self._live.values():
                bound_log(live.files.file("log"))
        return dict(self._states)

    def changed(self) -> Set[str]:
        """The pods whose states changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def _read(self, key: Key) -> None:
        uid, container = key
        live = self._live[key]
        group = self._group_of(uid, container)
        pids = self._driver.pids(group) if group else []
        running = bool(pids) or (live.files.number("status") is None and self._shim_alive(key, live))
        before = self._oom_kills.get(group, 0)
        state = container_state(container, live.files, running, lambda: oom_kills(self._driver, group) > before)
        known = self._states[uid]
        if known.get(container) != state:
            # Replaced, not mutated: an observation may hold the old one.
            self._states[uid] = dict(sorted({**known, container: state}.items()))
            self._changed.add(uid)
        if state.exited:
            if pids:
                self._driver.kill(group)
            else:
                bound_log(live.files.file("log"))
                self._settle(key)
        elif state.pid and self.exits.watches(key):
            self._unread.discard(key)

    def _settle(self, key: Key) -> None:
        """Nothing about this container changes any more."""
        live = self._live.pop(key)
        self._unread.discard(key)
        self.exits.forget(key)
        if live.shim is not None:
            live.shim.poll()

    def _shim_alive(self, key: Key, live: _Live) -> bool:
        """Whether the shim runs; one that was found is watched from now on."""
        if live.shim is not None:
            return live.shim.poll() is None
        pid = live.files.number("shim")
        if pid is None:
            return False
        watched = self.exits.watches(key) or self.exits.watch(key, pid)
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            command = b""
        alive = str(live.files.stem).encode() in command.split(b"\0")
        if watched and not alive:
            self.exits.forget(key)
        return alive
