"""Monitors LOG's room, and makes room.

In: the log, and the folder that nats-server stores in where this machine has it. Out: the newest `StorageSpace`; the server
enforces LOG's limit once LOG is half full, and not below a quarter; LOG keeps fewer versions while its bound is short and all
of them once there is room again; on request LOG is extended, so that a deletion can be stored although its bound is reached.

Bounds: a check every LOOK_SECONDS; at most EXTENSIONS extensions by `extension_bytes`, which are undone once there is room.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from cotenant.events.objects import ObjectStored
from cotenant.log.contract import EXTENSIONS, Bounded, Log, LogSpace, extension_bytes
from cotenant.log.nats.streams import MAX_MESSAGE_BYTES
from cotenant.log.plans import Plan
from cotenant.runtime.follower import LOG_ERRORS
from cotenant_gateway.loop.room import StorageSpace
from cotenant_gateway.statuses import insufficient_storage

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
MESSAGE_BYTES = 200
"""A message without the object in it, at least."""


class SpaceWatch:
    """The room on one log. `store` None: only LOG's own bound is known."""

    def __init__(self, log: Log, store: Path | None = None) -> None:
        self._log = log if isinstance(log, Bounded) else None
        self._store = store
        self._making_room = asyncio.Lock()
        self._look_now = asyncio.Event()
        self.room = StorageSpace(LogSpace(0, 0))
        self.needs_room: Callable[[], bool] = lambda: False
        """Whether the gateway itself waits for room: without its start marker it can neither load nor delete."""
        self.on_exhausted: Callable[[], None] = lambda: None
        """Called at every check that finds the disk full: pending writes are not answered."""
        self.on_change: Callable[[str], None] = lambda _text: None
        """Called with the text of a new `StorageSpace` when room becomes short, and with "" when there is room again."""

    async def run(self) -> None:
        """Check forever; cancelled at the end of the process."""
        while True:
            self._look_now.clear()
            async with self._making_room:
                await self._look()
                await self._enforce()
                await self._keep_versions()
                await self._take_back()
                if self.room.is_exhausted:
                    self.on_exhausted()
                if self.needs_room() and not self._fits_a_message():
                    await self._make_room()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._look_now.wait()
            except TimeoutError:
                continue

    def check(self, *, ends: bool) -> None:
        """Raise ApiError 507 if a write is refused for lack of room; `ends`: it is part of a deletion."""
        if self.room.is_exhausted or (self.room.is_short and not ends):
            raise insufficient_storage(str(self.room))

    def took(self, plan: Plan) -> None:
        """A plan was stored: count it until the next check, so that a burst does not use the reserve."""
        log = self.room.log
        payloads = [write.payload for write in plan.writes]
        octets = MESSAGE_BYTES * len(payloads) + sum(len(data.object) for data in payloads if isinstance(data, ObjectStored))
        self._set(replace(self.room, log=replace(log, used=log.used + octets)))

    def hurry(self) -> None:
        """Check at once: LOG has just refused a write, or the estimate is that room is short."""
        self._look_now.set()

    async def make_room(self) -> bool:
        """Extend LOG for a deletion that was refused, unless there is room now. False if that cannot be done."""
        async with self._making_room:
            await self._look()
            return await self._make_room()

    async def _make_room(self) -> bool:
        try:
            if self._log is None or self._fits_a_message():
                return True
            log = self.room.log
            extended = log.extended + extension_bytes(log.limit)
            if extended > EXTENSIONS * extension_bytes(log.limit):
                return False
            logger.warning("LOG is at its bound: for deletions it may take %d bytes more until there is room", extended)
            await self._log.extend(extended)
            await self._look()
        except LOG_ERRORS as error:
            logger.warning("no room can be made on LOG: %s", error)
            return False
        return True

    def _fits_a_message(self) -> bool:
        left = self.room.left_of_bound
        return left is None or left + self.room.log.extended > MAX_MESSAGE_BYTES

    async def _look(self) -> None:
        free = await asyncio.to_thread(_free_bytes, self._store)
        space = self.room.log
        try:
            if self._log is not None:
                async with asyncio.timeout(LOOK_SECONDS):
                    space = await self._log.space()
        except LOG_ERRORS as error:
            logger.debug("the size of LOG cannot be read: %s", error)
        self._set(StorageSpace(space, free, str(self._store or "")))

    def _set(self, room: StorageSpace) -> None:
        before, self.room = self.room, room
        if room.is_short:
            self.on_change(str(room))
            if not before.is_short:
                logger.error("%s", room)
                self.hurry()
        elif before.is_short:
            logger.warning("there is room again: LOG takes %d of %d bytes", room.log.used, room.log.limit)
            self.on_change("")

    async def _keep_versions(self) -> None:
        wanted = self.room.versions()
        if self._log is None or wanted == self.room.log.versions:
            return
        try:
            await self._log.keep_versions(wanted)
            await self._look()
            logger.warning("LOG keeps %d versions of a subject; it takes %d bytes now", wanted, self.room.log.used)
            self.hurry()
        except LOG_ERRORS as error:
            logger.warning("%s", error)

    async def _enforce(self) -> None:
        """Let the server enforce LOG's limit, or stop: see `StorageSpace.is_enforced`."""
        wanted, log = self.room.is_enforced(), self.room.log
        if self._log is None or not log.limit or wanted == log.enforced:
            return
        try:
            await self._log.enforce(wanted)
            await self._look()
            logger.info("LOG takes %d of %d bytes: its bound is %s", log.used, log.limit, "enforced" if wanted else "watched")
        except LOG_ERRORS as error:
            logger.warning("%s", error)

    async def _take_back(self) -> None:
        """End extensions once LOG is below its bound."""
        if self._log is None or not self.room.log.extended or self.room.bound_is_short:
            return
        try:
            await self._log.extend(0)
        except LOG_ERRORS as error:
            logger.warning("%s", error)


def _free_bytes(store: Path | None) -> int | None:
    """Return the free bytes of the disk that holds a folder; None without one, or if they cannot be read."""
    if store is None:
        return None
    try:
        return shutil.disk_usage(store).free
    except OSError as error:
        logger.debug("%s: %s", store, error)
        return None
