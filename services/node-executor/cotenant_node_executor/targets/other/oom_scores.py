"""`oom_score_adj` of the processes of control groups.

In: a control group below the executor's root, the adjustment as text. Out: the same; if processes differ, all their values
with commas. Processes that have ended meanwhile are skipped. Lowering a value requires CAP_SYS_RESOURCE (EACCES without).
A former value is restored for all processes, also those that started later, where all had the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from cotenant_node_executor.targets.address import Attribute, NonCgroup, OomScore
from cotenant_node_executor.targets.interface import InvalidValueError


class OomScoreAccessor:
    """Files below /proc, of the processes that `pids_of` finds in a control group."""

    def __init__(self, pids_of: Callable[[str], Sequence[int]], proc: Path = Path("/proc")) -> None:
        self._pids_of = pids_of
        self._proc = proc

    def _files(self, place: NonCgroup) -> list[Path]:
        assert isinstance(place, OomScore)
        return [self._proc / str(pid) / "oom_score_adj" for pid in self._pids_of(place.group)]

    def read(self, place: NonCgroup, _attribute: Attribute) -> str | None:
        """The value that all have, or all values; None for a group without processes."""
        found: set[int] = set()
        for file in self._files(place):
            with suppress(FileNotFoundError, ProcessLookupError):
                found.add(int(file.read_text(encoding="ascii")))
        return ",".join(str(value) for value in sorted(found)) if found else None

    def write(self, place: NonCgroup, _attribute: Attribute, value: str) -> None:
        """Write the value for each process. Raises InvalidValueError for a value outside of -1000..1000."""
        if not value.removeprefix("-").isdecimal() or len(value) > 5 or not -1000 <= int(value) <= 1000:
            raise InvalidValueError(f"oom_score_adj {value[:20]!r}: expected -1000..1000")
        for file in self._files(place):
            with suppress(FileNotFoundError, ProcessLookupError):
                descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(descriptor, value.encode("ascii"))
                finally:
                    os.close(descriptor)

    def holds(self, _attribute: Attribute, wanted: str, present: str) -> bool:
        """Whether all processes have the value."""
        return wanted == present

    def restore(self, place: NonCgroup, attribute: Attribute, text: str) -> None:
        """Write the former value; of processes with several it is not known which had which."""
        if "," not in text:
            self.write(place, attribute, text)
