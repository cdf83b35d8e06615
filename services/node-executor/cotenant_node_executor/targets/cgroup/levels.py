"""The order of a cycle's writes, so that the kernel refuses no intermediate state.

| phase | direction | what |
|---|---|---|
| RELAX | top to bottom | smaller bursts, as a quota may not fall below its burst; cpu.idle off, as it locks shares |
| WIDEN | top to bottom | looser values, and values without an order; for a cpuset the union of old and new |
| NARROW | bottom to top | the exact value where WIDEN wrote another one |
| TIGHTEN | top to bottom | larger bursts (their quota is written by then), cpu.idle on |

A parent is widened before its child, and a child narrowed before its parent (koordlet's leveled write; a union that WIDEN
wrote is always narrowed to the exact set). A larger number is looser, and -1 is the loosest. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from cotenant_node_executor.targets.convert import parse_int
from cotenant_node_executor.targets.cpulist import format_cpu_list, parse_cpu_list
from cotenant_node_executor.targets.interface import Knob

_NUMBERS = frozenset((Knob.CPU_QUOTA, Knob.CPU_RT_RUNTIME, Knob.MEMORY_MIN, Knob.MEMORY_LOW, Knob.MEMORY_HIGH))
_SETS = frozenset((Knob.CPUSET_CPUS, Knob.CPUSET_MEMS))
# Within a group the period is written first, since a quota is relative to it; shares can be written only while cpu.idle is off.
_KNOB_ORDER = {knob: index for index, knob in enumerate(Knob)} | {Knob.CPU_PERIOD: -1, Knob.CPU_RT_PERIOD: -1}


class WritePhase(IntEnum):
    RELAX = 0
    WIDEN = 1
    NARROW = 2
    TIGHTEN = 3


class FileChange(msgspec.Struct, frozen=True):
    group: str
    knob: Knob
    old: str | None  # None: unreadable or unknown; the value is then written in WIDEN
    new: str


class WriteStep(msgspec.Struct, frozen=True):
    phase: WritePhase
    group: str
    knob: Knob
    value: str
    final: bool  # False for a union that NARROW will replace


def _number(text: str, knob: Knob) -> float:
    value = parse_int(text, knob.value)
    return float("inf") if value == -1 else value


def level_values(knob: Knob, old: str, new: str) -> tuple[str | None, str | None]:
    """The values written from top to bottom and from bottom to top; None for no write.

    Raises ValueError for an old value that cannot be compared.
    """
    if knob in _NUMBERS:
        if _number(new, knob) > _number(old, knob):
            return new, None
        return None, new if _number(new, knob) < _number(old, knob) else None
    if knob in _SETS:
        wanted, present = set(parse_cpu_list(new)), set(parse_cpu_list(old))
        if wanted == present:
            return None, None
        if wanted <= present:
            return None, new
        union = wanted | present
        return (new, None) if union == wanted else (format_cpu_list(union), new)
    return (new, None) if new != old else (None, None)


def _steps(change: FileChange) -> list[WriteStep]:
    group, knob, old, new = change.group, change.knob, change.old, change.new
    if knob in (Knob.CPU_BURST, Knob.CPU_IDLE):
        rises = old is None or parse_int(new, knob.value) > parse_int(old, knob.value)
        return [WriteStep(WritePhase.TIGHTEN if rises else WritePhase.RELAX, group, knob, new, True)]
    if old is None:
        return [WriteStep(WritePhase.WIDEN, group, knob, new, True)]
    first, second = level_values(knob, old, new)
    steps = [WriteStep(WritePhase.WIDEN, group, knob, first, second is None)] if first is not None else []
    return steps + ([WriteStep(WritePhase.NARROW, group, knob, second, True)] if second is not None else [])


def _position(step: WriteStep) -> tuple[int, int, str, int]:
    depth = step.group.count("/") + 1 if step.group else 0
    return (step.phase, -depth if step.phase is WritePhase.NARROW else depth, step.group, _KNOB_ORDER[step.knob])


def plan(changes: Iterable[FileChange]) -> list[WriteStep]:
    """Return all steps of a cycle in the order of execution."""
    return sorted((step for change in changes for step in _steps(change)), key=_position)
