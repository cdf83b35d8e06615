"""The imitated tree with files that Anolis' kernel has: page-cache limits and group identity."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.interface import Knob

SIZE, IDENTITY = Knob.MEMORY_PAGECACHE_SIZE.value, Knob.CPU_BVT.value
FLAGS = (Knob.MEMORY_PAGECACHE_SYNC.value, Knob.MEMORY_PAGECACHE_ENABLE.value)
FILES = dict.fromkeys((SIZE, *FLAGS, IDENTITY), "0")


class AnolisTree(SandboxDriver):
    """The files refuse a page-cache limit above the memory limit, flags but 0 and 1, and an identity outside -1 to 2."""

    def _fill(self, directory: Path) -> None:
        super()._fill(directory)
        for name, text in FILES.items():
            if not (directory / name).exists():
                (directory / name).write_text(text)

    def _write_text(self, path: Path, text: str) -> None:
        if path.name not in FILES:
            super()._write_text(path, text)
            return
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if not self._accepts(path, int(text)):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        path.write_text(text)

    def _accepts(self, path: Path, value: int) -> bool:
        if path.name in FLAGS:
            return value in (0, 1)
        if path.name == IDENTITY:
            return -1 <= value <= 2
        most = int((path.parent / "memory.limit_in_bytes").read_text())
        return value >= 0 and (most <= 0 or value <= most)
