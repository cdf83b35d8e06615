"""The supervisor's side of the fork server: starts it, asks it for forks, and awaits their ends.

In: command lines `python -m MODULE ...`, each with a file for its output. Out: its pid, and how it ended, like a child of the
supervisor's own. A fork server that has died (its forks get SIGTERM with it) is started again by the next `start`.

Bounds: one request of MAX_MESSAGE_BYTES at a time for each fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import BinaryIO

import msgspec

from cotenant_console.up.forking.process_title import ROOM
from cotenant_console.up.forking.server import MAX_MESSAGE_BYTES, Exited, Fork, Forked
from cotenant_console.up.process_settings import end_with_parent

FORK_SERVER = "cotenant_console.up.forking.server"
"""The module that runs it."""
END_SECONDS = 5.0
_ANSWERS = msgspec.json.Decoder(Forked | Exited)


class ForkServer:
    """Use from one event loop; `close` ends it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: the forks' own."""
        self._environment = dict(environment)
        self._channel: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._number = 0
        self._forks: dict[int, asyncio.Future[tuple[int, asyncio.Future[int]]]] = {}
        """By request, what `fork` returns."""
        self._ends: dict[int, asyncio.Future[int]] = {}
        """By pid, how it ended."""
        self._starting = asyncio.Lock()

    async def start(self, output: BinaryIO) -> None:
        """Start it, unless it runs. Raises OSError. `output`: of the server itself."""
        async with self._starting:
            if self._channel is None:
                await self._start(output)

    async def _start(self, output: BinaryIO) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    FORK_SERVER,
                    str(theirs.fileno()),
                    ROOM,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._environment,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    preexec_fn=partial(end_with_parent, os.getpid()),
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._channel = ours
        asyncio.get_running_loop().add_reader(ours, self._read)

    async def fork(self, argv: tuple[str, ...], output: BinaryIO) -> tuple[int, asyncio.Future[int]]:
        """Start a fork; returns its pid and a future of its exit status, negative where a signal killed it. Raises OSError."""
        if self._channel is None:
            raise OSError("the fork server does not run")
        self._number += 1
        number = self._number
        request = msgspec.json.encode(Fork(number, argv))
        if len(request) > MAX_MESSAGE_BYTES:
            raise OSError(f"a command line of more than {MAX_MESSAGE_BYTES} bytes")
        forked: asyncio.Future[tuple[int, asyncio.Future[int]]] = asyncio.get_running_loop().create_future()
        self._forks[number] = forked
        try:
            socket.send_fds(self._channel, [request], [output.fileno()])
            return await forked
        finally:
            self._forks.pop(number, None)

    def _read(self) -> None:
        assert self._channel is not None
        while True:
            try:
                data = self._channel.recv(MAX_MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lost()
                return
            match _ANSWERS.decode(data):
                case Forked(number=number, pid=pid):
                    ended = self._ends[pid] = asyncio.get_running_loop().create_future()
                    waiting = self._forks.get(number)
                    if waiting is not None and not waiting.done():
                        waiting.set_result((pid, ended))
                    else:  # whoever wanted it was cancelled
                        _terminate(pid)
                case Exited(pid=pid, code=code):
                    if pid in self._ends:
                        _set(self._ends.pop(pid), code)

    def _lost(self) -> None:
        """The server has ended: its forks got SIGTERM, and each is awaited until it is gone."""
        self._forget_channel()
        for waiting in self._forks.values():
            if not waiting.done():
                waiting.set_exception(OSError("the fork server ended"))
        for pid, ended in self._ends.items():
            _when_gone(pid, partial(_set, ended, -signal.SIGTERM))
        self._ends.clear()

    def _forget_channel(self) -> None:
        if self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel)
            self._channel.close()
            self._channel = None

    async def close(self) -> None:
        """End it; forks that still run get SIGTERM."""
        self._forget_channel()
        if self._process is None:
            return
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._process = None


def _set(ended: asyncio.Future[int], code: int) -> None:
    if not ended.done():
        ended.set_result(code)


def _when_gone(pid: int, call: Callable[[], None]) -> None:
    """Call a function once a process, not a child of this one, has ended."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        call()
        return

    def gone() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        call()

    loop.add_reader(handle, gone)


def _terminate(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
