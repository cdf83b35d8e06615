"""The owners of page cache in some page frames: /proc/kpageflags and /proc/kpagecgroup.

In: ranges of page frames. Out: file pages by control group (the inode of its directory; 0: of none). Of large ranges a sample
is read: blocks of BLOCK frames, every k-th, so that at most `budget` pages are looked at; each counts k times. Flags as in
Documentation/admin-guide/mm/pagemap.rst. Only a large page's first frame has type and owner; the others follow it.
"""

from __future__ import annotations

import os
import re
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cotenant_node_executor.sampling.slow.readings import Unavailable
from cotenant_node_executor.targets.cgroup.tree import read_file

BLOCK = 512
"""Frames of the largest page of a page cache."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
BUDGET = 1 << 19
"""Pages that one round reads: 0.2 s of CPU where all of them are page cache, a tenth of it where memory is free."""
_LRU, _ANON, _TAIL = 1 << 5, 1 << 12, 1 << 16
_WORD = 8
_HAS_LRU = bytes(bool(byte & _LRU) for byte in range(256))
"""By the lowest byte of a page's flags."""

Range = tuple[int, int]
"""First frame, and the one behind the last."""

_SYSTEM_RAM = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) : System RAM$", re.MULTILINE)


def parse_iomem(content: str) -> tuple[Range, ...]:
    """Return the byte ranges of memory, the end exclusive; none where the addresses are hidden, as from users without
    rights."""
    found = [(int(start, 16), int(end, 16) + 1) for start, end in _SYSTEM_RAM.findall(content)]
    return tuple((start, end) for start, end in found if end > start + 1)


def system_ram(proc: Path) -> tuple[Range, ...]:
    """Return the byte ranges of the machine's memory. Raises Unavailable where they are hidden."""
    found = parse_iomem(read_file(proc / "iomem") or "")
    if not found:
        raise Unavailable("/proc/iomem hides physical addresses without CAP_SYS_ADMIN")
    return found


def frames(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Return the frames that lie wholly in byte ranges."""
    found = ((-(-start // PAGE_BYTES), end // PAGE_BYTES) for start, end in ranges)
    return tuple((first, behind) for first, behind in found if behind > first)


def sampled(ranges: Sequence[Range], budget: int, phase: int = 0) -> tuple[int, list[Range]]:
    """Return how much each block counts, and the blocks to read; `phase` chooses which of several samples."""
    pages = sum(behind - first for first, behind in ranges)
    every = max(1, -(-pages // max(budget, 1)))
    return every, [block for index, block in enumerate(_blocks(ranges)) if (index + phase) % every == 0]


def _blocks(ranges: Sequence[Range]) -> Iterator[Range]:
    for first, behind in ranges:
        start = first
        while start < behind:
            end = min(behind, (start // BLOCK + 1) * BLOCK)
            yield start, end
            start = end


def file_pages(flags: bytes, owners: bytes, idle: bytes | None = None) -> Counter[int]:
    """Count the page cache's pages by owner. `idle`: one bit a page, lowest first; only set ones count."""
    counted: Counter[int] = Counter()
    if sys.byteorder == "little" and not any(flags[::_WORD].translate(_HAS_LRU)):
        return counted  # free, or the kernel's own
    owned = array("Q", owners) if owners else None
    is_file, owner = False, 0
    for index, flag in enumerate(array("Q", flags)):
        if not flag & _TAIL:
            is_file = bool(flag & _LRU) and not flag & _ANON
            owner = owned[index] if owned is not None and index < len(owned) else 0
        if is_file and (idle is None or idle[index >> 3] >> (index & 7) & 1):
            counted[owner] += 1
    return counted


class PageOwners:
    """The two files, opened once."""

    def __init__(self, proc: Path) -> None:
        self._files: list[int] = []
        try:
            self._files.append(os.open(proc / "kpageflags", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise Unavailable(f"kpageflags: {error.strerror}") from error
        with suppress(OSError):  # without it pages are counted for the node alone
            self._files.append(os.open(proc / "kpagecgroup", os.O_RDONLY | os.O_CLOEXEC))

    def in_block(self, block: Range, idle: bytes | None = None) -> Counter[int]:
        """Count the page cache's pages of one block by owner."""
        first, behind = block
        texts = [_words(os.pread(file, (behind - first) * _WORD, first * _WORD)) for file in self._files]
        return file_pages(texts[0], texts[1] if len(texts) > 1 else b"", idle)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            os.close(file)
        self._files = []


def _words(content: bytes) -> bytes:
    return content[: len(content) // _WORD * _WORD]
