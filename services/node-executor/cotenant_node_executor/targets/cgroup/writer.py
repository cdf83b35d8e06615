"""The write layer: compares desired values with the files, and issues the fewest writes in a safe order.

In: the map (group, knob) -> value of a cycle, one value per file. Out: completed writes with old and new value as read back,
and the kernel's refusals. A confirmed value is not read again for a minute; then the file is checked, so that a change by
another process is repaired (koordlet's force-update interval). While all values of a map are confirmed, the same map is not
looked through again. A refused write is tried again every cycle; a new refusal is reported, a repeated one only counted.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping

import msgspec

from cotenant_node_executor.targets.cgroup.durations import FAILED, SUCCEEDED, Histogram, WriteDurations
from cotenant_node_executor.targets.cgroup.files import check_value, holds
from cotenant_node_executor.targets.cgroup.levels import FileChange, plan
from cotenant_node_executor.targets.interface import (
    CgroupDriver,
    InvalidValueError,
    Knob,
    NodeCapabilities,
    RefusedValue,
    WriteReport,
    WrittenValue,
)

CONFIRMED_FOR_NS = 60_000_000_000
_GONE = (errno.ENOENT, errno.ENODEV)

Key = tuple[str, Knob]


# Meanings of the kernel's errors for each knob, found by experiment.
_MEANINGS: dict[tuple[Knob, int], str] = {
    (Knob.CPU_QUOTA, errno.EINVAL): "below its burst, or (v1) above the parent's ratio or below a child's",
    (Knob.CPU_PERIOD, errno.EINVAL): "(v1) the ratio would be above the parent's or below a child's",
    (Knob.CPU_BURST, errno.EINVAL): "above the quota",
    (Knob.CPU_SHARES, errno.EINVAL): "cpu.idle is 1",
    (Knob.CPUSET_CPUS, errno.EACCES): "outside the parent's cpuset",
    (Knob.CPUSET_CPUS, errno.EBUSY): "a child's cpuset has CPUs that are missing here",
    (Knob.CPUSET_CPUS, errno.EINVAL): "CPUs that this machine lacks",
    (Knob.CPUSET_CPUS, errno.ENOSPC): "an empty cpuset while processes are in the group",
    (Knob.MEMORY_LIMIT, errno.EBUSY): "more is in use and could not be reclaimed",
}


def _explained(error: OSError, knob: Knob) -> str:
    answer = os.strerror(error.errno) if error.errno else str(error)
    meaning = _MEANINGS.get((knob, error.errno or 0))
    return f"{answer}: {meaning}" if meaning else answer


class _Confirmed(msgspec.Struct, frozen=True):
    value: str
    at_ns: int


class _Cycle:
    """The results of one call."""

    def __init__(self) -> None:
        self.changes: list[FileChange] = []
        self.written: list[WrittenValue] = []
        self.refused: dict[Key, RefusedValue] = {}
        self.unchanged = 0
        self.skipped = 0
        self.missing = 0
        """Skipped files that may be written later."""
        self.check_at_ns = 0
        """When the first confirmed value is checked again; 0 where none is confirmed."""


class _Settled(msgspec.Struct, frozen=True):
    """A map whose values were all confirmed, and its report, until a value is due to be checked."""

    values: Mapping[Key, str]
    report: WriteReport
    until_ns: int


class Writer:
    def __init__(
        self,
        driver: CgroupDriver,
        capabilities: NodeCapabilities,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._driver = driver
        self._capabilities = capabilities
        self._clock_ns = clock_ns
        self._confirmed: dict[Key, _Confirmed] = {}
        self._known_refusals: dict[Key, RefusedValue] = {}
        self._settled: _Settled | None = None
        self.durations: WriteDurations = {}
        """Of all writes since the start."""

    def apply(self, values: Mapping[Key, str]) -> WriteReport:
        """Write the values. Never raises for a single file; a missing group, or a knob that this kernel lacks, is skipped.
        The map must not change afterwards."""
        now = self._clock_ns()
        settled = self._settled
        if settled is not None and settled.values is values and now < settled.until_ns:
            return settled.report
        cycle = _Cycle()
        for key in sorted(values, key=lambda each: (each[0], each[1].value)):
            self._compare(cycle, key, values[key], now)
        self._order_shares(cycle, values)
        self._carry_out(cycle, now)
        report = self._report(cycle, values)
        all_confirmed = not cycle.changes and not cycle.refused and not cycle.missing and cycle.check_at_ns
        self._settled = _Settled(values, report, cycle.check_at_ns) if all_confirmed else None
        return report

    def forget(self, group: str) -> None:
        """Drop cached values of a group that was removed or created again."""
        self._settled = None
        below = group + "/"
        for key in [key for key in self._confirmed if key[0] == group or key[0].startswith(below)]:
            del self._confirmed[key]

    def _compare(self, cycle: _Cycle, key: Key, value: str, now: int) -> None:
        group, knob = key
        if not self._capabilities.supports(knob):
            cycle.skipped += 1
            return
        confirmed = self._confirmed.get(key)
        if confirmed and confirmed.value == value and now - confirmed.at_ns < CONFIRMED_FOR_NS:
            cycle.unchanged += 1
            due = confirmed.at_ns + CONFIRMED_FOR_NS
            cycle.check_at_ns = min(cycle.check_at_ns or due, due)
            return
        try:
            check_value(knob, value)
            old = self._driver.read(group, knob)
            if old is None:
                cycle.skipped += 1
                cycle.missing += 1
                self._confirmed.pop(key, None)
                return
            if self._holds(key, value, old):
                cycle.unchanged += 1
                cycle.check_at_ns = cycle.check_at_ns or now + CONFIRMED_FOR_NS
                self._confirmed[key] = _Confirmed(value, now)
                return
            change = FileChange(group, knob, old, value)
            plan([change])  # an old value that cannot be compared is overwritten
        except InvalidValueError as error:
            self._refuse(cycle, key, value, error)
            return
        except ValueError:
            change = FileChange(group, knob, None, value)
        except OSError as error:
            self._refuse(cycle, key, value, error)
            return
        cycle.changes.append(change)

    def _order_shares(self, cycle: _Cycle, values: Mapping[Key, str]) -> None:
        """While cpu.idle is 1 the kernel refuses shares, and clearing it resets them to the default."""
        with_shares = {change.group for change in cycle.changes if change.knob is Knob.CPU_SHARES}
        locked = {group for group in with_shares if self._will_be_idle(values, group)}
        cycle.skipped += len(locked)
        cycle.missing += len(locked)
        present = [c for c in cycle.changes if c.knob is not Knob.CPU_SHARES or c.group not in locked]
        unlocked = [c.group for c in present if c.knob is Knob.CPU_IDLE and c.new == "0" and c.group not in with_shares]
        wanted = ((group, values.get((group, Knob.CPU_SHARES))) for group in unlocked)
        cycle.changes = present + [FileChange(group, Knob.CPU_SHARES, None, value) for group, value in wanted if value]

    def _will_be_idle(self, values: Mapping[Key, str], group: str) -> bool:
        if not self._capabilities.supports(Knob.CPU_IDLE):
            return False
        wanted = values.get((group, Knob.CPU_IDLE))
        return (self._driver.read(group, Knob.CPU_IDLE) if wanted is None else wanted) == "1"

    def _carry_out(self, cycle: _Cycle, now: int) -> None:
        failed: set[Key] = set()
        touched: set[Key] = set()
        for step in plan(cycle.changes):
            key = (step.group, step.knob)
            if key in failed:
                continue
            began, outcome = self._clock_ns(), FAILED
            try:
                self._driver.write(step.group, step.knob, step.value)
                touched.add(key)
                outcome = SUCCEEDED
            except (OSError, InvalidValueError) as error:
                failed.add(key)
                self._confirmed.pop(key, None)
                self._refuse(cycle, key, step.value, error)
            milliseconds = (self._clock_ns() - began) / 1e6
            self.durations.setdefault((step.knob, outcome), Histogram()).add(milliseconds)
        for change in cycle.changes:
            if (change.group, change.knob) in touched:
                self._read_back(cycle, change, now)

    def _read_back(self, cycle: _Cycle, change: FileChange, now: int) -> None:
        key = (change.group, change.knob)
        try:
            present = self._driver.read(*key)
        except (OSError, ValueError) as error:
            self._refuse(cycle, key, change.new, error)
            return
        if present is None:
            cycle.skipped += 1
            return
        if change.old != present:
            cycle.written.append(WrittenValue(change.group, change.knob, self._file(key), change.old or "", present))
        if key in cycle.refused:
            return
        if self._holds(key, change.new, present):
            self._confirmed[key] = _Confirmed(change.new, now)
        else:
            self._refuse(cycle, key, change.new, ValueError(f"written, but the kernel shows {present!r}"))

    def _holds(self, key: Key, wanted: str, present: str) -> bool:
        return holds(self._driver.version, key[1], wanted, present)

    def _refuse(self, cycle: _Cycle, key: Key, value: str, error: OSError | ValueError) -> None:
        number = (error.errno or 0) if isinstance(error, OSError) else 0
        if number in _GONE:
            cycle.skipped += 1
            cycle.missing += 1
            return
        message = _explained(error, key[1]) if isinstance(error, OSError) else str(error)
        cycle.refused[key] = RefusedValue(key[0], key[1], self._file(key), value, number, message)

    def _file(self, key: Key) -> str:
        path = self._driver.path(*key)
        return key[1].value if path is None else path.name

    def _report(self, cycle: _Cycle, values: Mapping[Key, str]) -> WriteReport:
        new = tuple(each for key, each in cycle.refused.items() if self._known_refusals.get(key) != each)
        self._known_refusals = cycle.refused
        for key in [key for key in self._confirmed if key not in values]:
            del self._confirmed[key]
        return WriteReport(tuple(cycle.written), new, cycle.unchanged, cycle.skipped, len(cycle.refused) - len(new))
