"""The neighbours of the colocation benchmark: programs that use as much of one resource as they get.

    burn       CPU time
    stream     memory bandwidth: repeatedly writes a buffer larger than the caches
    fork       processes: every one forks, burns a millisecond, and some of them end
    hog        memory: 16 MiB more every 50 ms, touched, until it is killed
    buffered   the disk, through the page cache: repeatedly writes a file, without fsync
    direct     the disk, around the page cache: O_DIRECT writes of 1 MiB; where the file system has none, fsync after each

Standard library only. Run as `neighbour.py KIND [--file PATH]`. It is harmless only within a control group that limits memory
and processes: the benchmark makes one.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import random
import signal
import time

STREAM_BYTES = 64 << 20
STEP_BYTES, STEP_SECONDS = 16 << 20, 0.05
FILE_BYTES, WRITE_BYTES = 256 << 20, 1 << 20
FORK_BURN_SECONDS = 0.001
FORK_END_SHARE = 0.2


def burn(_file: str) -> None:
    """Use CPU time."""
    while True:
        pass


def stream(_file: str) -> None:
    """Write memory."""
    buffer = mmap.mmap(-1, STREAM_BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    value = 0
    while True:
        ctypes.memset(address, value & 0xFF, STREAM_BYTES)
        value += 1


def fork(_file: str) -> None:
    """Fork without end; the kernel reaps the children."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    first = os.getpid()
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(FORK_BURN_SECONDS)
        until = time.monotonic() + FORK_BURN_SECONDS
        while time.monotonic() < until:
            pass
        if os.getpid() != first and random.random() < FORK_END_SHARE:
            os._exit(0)


def hog(_file: str) -> None:
    """Hold ever more memory."""
    held = []
    while True:
        buffer = mmap.mmap(-1, STEP_BYTES)
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(buffer)), 1, STEP_BYTES)
        held.append(buffer)
        time.sleep(STEP_SECONDS)


def buffered(file: str) -> None:
    """Write through the page cache."""
    _write(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), synchronous=False)


def direct(file: str) -> None:
    """Write around the page cache."""
    try:
        _write(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600), synchronous=False)
    except OSError:
        _write(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), synchronous=True)


def _write(descriptor: int, *, synchronous: bool) -> None:
    block = mmap.mmap(-1, WRITE_BYTES)  # aligned to a page, as O_DIRECT asks for
    offset = 0
    while True:
        os.pwrite(descriptor, block, offset)
        if synchronous:
            os.fsync(descriptor)
        offset = (offset + WRITE_BYTES) % FILE_BYTES


KINDS = {each.__name__: each for each in (burn, stream, fork, hog, buffered, direct)}

if __name__ == "__main__":
    made = argparse.ArgumentParser(prog="neighbour")
    made.add_argument("kind", choices=sorted(KINDS))
    made.add_argument("--file", default="")
    given = made.parse_args()
    KINDS[given.kind](given.file)
