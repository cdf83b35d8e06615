"""What happens in a run, as data: a header and entries, each at its moment. A run follows from its schedule alone.

In: entries made from a seed (`workload`, `faults`), or a file. Out: the same, as a file of JSON lines that can be edited,
shrunk and replayed. An entry whose target is not there when its moment comes does nothing: so entries can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec

from cotenant.log.contract import TOMBSTONE_TTL_SECONDS

SETTLE_MS = 4_000
"""Namespaces, quotas and the configuration come before it, pods and faults after."""
LONG_MS = 600_000
"""Shorter runs have no PodGroups and no quota profiles: these come, change and go within minutes."""

MOST_SPAN_S = 30 * 86_400
MOST_NODES = 1_000

Moment = Annotated[int, msgspec.Meta(ge=0, le=MOST_SPAN_S * 1000)]
"""Milliseconds since the start."""


def moments(chance: Random, every_ms: int, until_ms: int) -> Iterator[float]:
    """Yield moments from SETTLE_MS to before `until_ms`, `every_ms` apart on average."""
    at = float(SETTLE_MS)
    while (at := at + chance.expovariate(1.0 / every_ms)) < until_ms:
        yield at


def ms(count: int) -> timedelta:
    """So many milliseconds."""
    return timedelta(milliseconds=count)


def located(target: str) -> tuple[str, str]:
    """Namespace and name of a target: `namespace/name`, or a name in the namespace `default`."""
    namespace, _, name = target.rpartition("/")
    return namespace or "default", name


class ScheduleError(ValueError):
    """A file that is not a valid schedule; the text states where and why."""


class ScheduleEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happens. `fault` False: a step of the workload. Times are in milliseconds since the start."""

    at_ms: Moment
    kind: str
    target: str = ""
    fault: bool = False
    args: dict[str, int | str] = {}

    def number(self, name: str) -> int:
        """An integer argument. Raises ScheduleError where it is missing or none."""
        try:
            return int(self.args[name])
        except (KeyError, ValueError) as error:
            raise ScheduleError(f"{self.kind} {self.target} at {self.at_ms} ms: {name} must be an integer") from error

    def text(self, name: str) -> str:
        """A text argument. Raises ScheduleError where it is missing."""
        if name not in self.args:
            raise ScheduleError(f"{self.kind} {self.target} at {self.at_ms} ms: {name} is missing")
        return str(self.args[name])


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a run beside its entries. Faults and workload come before `span_ms`; the rest is the idle phase."""

    seed: int
    span_ms: Moment
    nodes: Annotated[int, msgspec.Meta(ge=0, le=MOST_NODES)]
    hop_ms: Annotated[int, msgspec.Meta(ge=1, le=60_000)]
    replicas: Annotated[int, msgspec.Meta(ge=1, le=2)] = 2
    tombstone_s: Annotated[int, msgspec.Meta(ge=1, le=MOST_SPAN_S)] = TOMBSTONE_TTL_SECONDS
    """How long tombstones stay: shortened, they run out within a run, and their subjects hold nothing."""


class Schedule(msgspec.Struct, frozen=True):
    """A run. Entries are in the order of their moments."""

    header: Header
    entries: tuple[ScheduleEntry, ...]

    @property
    def faults(self) -> int:
        """How many entries are faults."""
        return sum(entry.fault for entry in self.entries)

    def having(self, entries: Sequence[ScheduleEntry]) -> Schedule:
        """The same run with other entries."""
        return Schedule(self.header, tuple(entries))


def in_order(entries: Sequence[ScheduleEntry]) -> tuple[ScheduleEntry, ...]:
    """Entries by moment; those of one moment stay as they are."""
    return tuple(sorted(entries, key=lambda entry: entry.at_ms))


def write_schedule(path: Path, schedule: Schedule) -> None:
    """Write a schedule as JSON lines, the header first."""
    encode = msgspec.json.encode
    lines = [encode(schedule.header), *(encode(entry) for entry in schedule.entries)]
    path.write_bytes(b"\n".join(lines) + b"\n")


def read_schedule(path: Path) -> Schedule:
    """Read a schedule. Raises ScheduleError."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise ScheduleError(f"{path}: {error.strerror}") from error
    entries = []
    header: Header | None = None
    for number, line in enumerate(lines, 1):
        try:
            if header is None:
                header = msgspec.json.decode(line, type=Header)
            else:
                entries.append(msgspec.json.decode(line, type=ScheduleEntry))
        except msgspec.DecodeError as error:
            raise ScheduleError(f"{path}, line {number}: {error}") from error
    if header is None:
        raise ScheduleError(f"{path}: the first line must be the header with seed, span_ms, nodes and hop_ms")
    return Schedule(header, in_order(entries))
