"""The fork server: a process that has imported what all services share, and forks itself for each service to start.

In, on a channel that it inherits: requests (`Fork`) to run a module, each with a file for the module's output. Out, on the
same channel: the pids of forks, and how they ended (`Forked`, `Exited`). It ends when the channel is closed; the kernel then
sends its forks SIGTERM.

Most of a service's start is importing (0.5-0.7 s of CPU time), and most of that is the same in all: a fork needs 0.03-0.2 s.
Modules that start threads must not be imported before a fork: threads do not exist in it. numpy does (its BLAS), so services
that calculate import it themselves.

A fork leaves the loop by its end and runs its module where `python -m` would, so it ends like any interpreter. Its command
line, as `ps` shows it, is the one that it stands for.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence

import msgspec

from cotenant_console.up.forking.process_title import show_command_line
from cotenant_console.up.process_settings import end_with_parent

SHARED = ("cotenant.runtime.deciding", "cotenant.kinds.registry", "cotenant.events")
"""What is imported before the first fork."""
MAX_MESSAGE_BYTES = 128 * 1024
"""Of a request: a command line."""


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Run the module of a command line `python -m MODULE ...`; `number` is repeated in the answer."""

    number: int
    argv: tuple[str, ...]


class Forked(msgspec.Struct, frozen=True, tag=True):
    """A fork runs."""

    number: int
    pid: int


class Exited(msgspec.Struct, frozen=True, tag=True):
    """A fork has ended; `code` is its exit status, or the negative number of the signal that killed it."""

    pid: int
    code: int


_REQUESTS = msgspec.json.Decoder(Fork)


def serve(channel: socket.socket) -> tuple[str, ...]:
    """Answer requests until the channel is closed; returns nothing then, and in a fork the command line to run."""
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        sources: tuple[socket.socket | int, ...] = (channel, woken)
        readable, _, _ = select.select(sources, (), ())
        if woken in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 512)
            _report_ends(channel)
        if channel in readable:
            data, files, _, _ = socket.recv_fds(channel, MAX_MESSAGE_BYTES, 1)
            if not data:
                return ()
            request = _REQUESTS.decode(data)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in (woken, wakes):
                    os.close(end)
                channel.close()
                _become(request.argv, files[0])
                return request.argv
            os.close(files[0])
            _say(channel, Forked(request.number, pid))


def _become(argv: Sequence[str], output: int) -> None:
    """Give a fork a session, an output and a command line of its own."""
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    show_command_line(argv)


def _report_ends(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _say(channel, Exited(pid, os.waitstatus_to_exitcode(status)))


def _say(channel: socket.socket, message: Forked | Exited) -> None:
    # A supervisor that has closed the channel needs no answers.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        channel.send(msgspec.json.encode(message))


def main() -> None:
    """Import, then serve on the channel whose number is the first argument."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    show_command_line((sys.executable, "-m", __spec__.name))
    for module in SHARED:
        importlib.import_module(module)
    # Collections in a fork leave these objects, and thereby the pages that they share, alone.
    gc.collect()
    gc.freeze()
    server = os.getpid()
    argv = serve(channel)
    if argv:
        end_with_parent(server)
        sys.argv = list(argv[2:])
        runpy.run_module(argv[2], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
