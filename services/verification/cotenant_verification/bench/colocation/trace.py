"""Why a service was slow beside its neighbours: what ran, how long its threads waited, stalls, the executor's actions.

In: the benchmark's control group, read at the two ends of a window, while the service's threads live; the machine's programs,
read around it. Out: `Trace`, shares of all CPUs (0..1) unless stated. The services are the burstable pods of the benchmark's
node, the neighbours its best-effort ones; everything else is foreign: the stack itself, the benchmark, and other programs of
this machine, of which the TOP that ran most are named.

Bounds: TOP programs, MOST_WORDS lines of the executor.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from cotenant_verification.bench.colocation.cleanup import group_roots

TOP, MOST_WORDS = 3, 6
EDGE_SECONDS = 0.1
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
SERVICES, NEIGHBOURS = "burstable", "besteffort"


class Trace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one window. `run_delay`: the time that the services' threads waited for a CPU, over the time that they ran;
    `preempted`: how often one had to leave its CPU, a second; `stalls`: PSI `some` of the services' group, share of the window,
    by resource."""

    services: float
    neighbours: float
    foreign: float
    idle: float
    stolen: float = 0.0
    run_delay: float | None = None
    preempted: float | None = None
    stalls: dict[str, float] = {}
    foreign_programs: tuple[tuple[str, float], ...] = ()
    executor: tuple[str, ...] = ()


class CounterReading(msgspec.Struct, frozen=True):
    """Counters at one moment, in ns."""

    at: float
    tiers: dict[str, int]
    cpus: tuple[int, ...]
    """Of /proc/stat."""
    ran: int
    waited: int
    switches: int
    stalls: dict[str, int]


class Programs(msgspec.Struct, frozen=True):
    """CPU time in ns by pid and name, at one moment."""

    at: float
    used: dict[tuple[int, str], int]


def read(base: str) -> CounterReading:
    """Read everything; processes that end meanwhile are left out."""
    tiers = {tier: [*_directories(base, tier)] for tier in (SERVICES, NEIGHBOURS)}
    ran = waited = switches = 0
    for task in (task for pid in _pids(tiers[SERVICES]) for task in Path(f"/proc/{pid}/task").glob("*")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            one, other, *_ = (task / "schedstat").read_text().split()
            status = (task / "status").read_text()
            ran, waited = ran + int(one), waited + int(other)
            switches += int(status.rpartition("nonvoluntary_ctxt_switches:")[2])
    return CounterReading(
        time.monotonic(),
        {tier: max((_usage_ns(top) for top in found), default=0) for tier, found in tiers.items()},
        tuple(int(each) * TICK_NS for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]),
        ran,
        waited,
        switches,
        {name: _stalled_ns(tiers[SERVICES], name) for name in ("cpu", "memory", "io")},
    )


def programs(base: str) -> Programs:
    """The CPU time of every program that is neither a service nor a neighbour."""
    own = {int(pid) for tier in (SERVICES, NEIGHBOURS) for pid in _pids([*_directories(base, tier)])}
    return Programs(time.monotonic(), {key: ticks * TICK_NS for key, ticks in _programs() if key[0] not in own})


def trace(before: CounterReading, after: CounterReading, others: tuple[Programs, Programs], words: Sequence[str]) -> Trace:
    """What happened between two readings. `others`: programs before and afterwards; `words`: of the executor, oldest first."""
    seconds = max(after.at - before.at, 1e-9)
    cpus = [max(last - first, 0) for first, last in zip(before.cpus, after.cpus, strict=True)]
    total = max(sum(cpus), 1)
    services, neighbours = (max(after.tiers[tier] - before.tiers[tier], 0) / total for tier in (SERVICES, NEIGHBOURS))
    idle, stolen = (cpus[3] + cpus[4]) / total, cpus[7] / total
    used: Counter[str] = Counter()
    for key, spent in others[1].used.items():
        used[key[1]] += max(spent - others[0].used.get(key, 0), 0)
    of_all = max((others[1].at - others[0].at) * 1e9 * (os.cpu_count() or 1), 1.0)
    ran = after.ran - before.ran
    stalls = {name: round((spent - before.stalls.get(name, 0)) / 1e9 / seconds, 3) for name, spent in after.stalls.items()}
    return Trace(
        services=round(services, 3),
        neighbours=round(neighbours, 3),
        foreign=round(max(1 - idle - stolen - services - neighbours, 0.0), 3),
        idle=round(idle, 3),
        stolen=round(stolen, 3),
        run_delay=round((after.waited - before.waited) / ran, 3) if ran > 0 else None,
        preempted=round(max(after.switches - before.switches, 0) / seconds, 1),
        stalls={name: share for name, share in stalls.items() if share > 0},
        foreign_programs=tuple((name, round(spent / of_all, 3)) for name, spent in used.most_common(TOP) if spent > 0),
        executor=tuple(words[-MOST_WORDS:]),
    )


def lines(found: Trace) -> list[str]:
    """A trace as a few lines."""
    programs = ", ".join(f"{name} {100 * share:.1f} %" for name, share in found.foreign_programs)
    parts = ("services", found.services), ("neighbours", found.neighbours), ("others", found.foreign)
    who = ", ".join(f"{name} {100 * share:.1f} %" for name, share in parts)
    rest = f", idle {100 * found.idle:.1f} %" + (f", stolen {100 * found.stolen:.1f} %" if found.stolen else "")
    delay = "unknown" if found.run_delay is None else f"{100 * found.run_delay:.1f} % of their running time"
    stalls = ", ".join(f"{name} {100 * share:.1f} %" for name, share in found.stalls.items()) or "none that the kernel counts"
    executor = [f"  {each}" for each in found.executor] or ["  nothing"]
    return [
        f"who ran: {who}{rest}" + (f"; most of the others: {programs}" if programs else ""),
        f"services waited for a CPU: {delay}; preempted {found.preempted or 0:.0f} times a second",
        f"services stalled: {stalls}",
        "the executor meanwhile:",
        *executor,
    ]


def _directories(base: str, tier: str) -> Iterator[Path]:
    for root in group_roots(base):
        yield from root.glob(f"cotenant/*/{tier}")


def _pids(tops: Sequence[Path]) -> set[str]:
    """The processes below a tier, which has a directory in each hierarchy."""
    found: set[str] = set()
    for file in (file for top in tops for file in top.rglob("cgroup.procs")):
        with contextlib.suppress(OSError):
            found.update(file.read_text().split())
    return found


def _usage_ns(top: Path) -> int:
    for name in ("cpuacct.usage", "cpu.stat"):
        with contextlib.suppress(OSError, ValueError):
            text = (top / name).read_text()
            if text.startswith("usage_usec"):
                return int(text.split(None, 2)[1]) * 1000
            if name == "cpuacct.usage":
                return int(text)
    return 0


def _stalled_ns(tops: Sequence[Path], resource: str) -> int:
    for top in tops:
        with contextlib.suppress(OSError, ValueError):
            return int((top / f"{resource}.pressure").read_text().split("\n", 1)[0].rpartition("total=")[2]) * 1000
    return 0


def _programs() -> Iterator[tuple[tuple[int, str], int]]:
    """The ticks of every process, by pid and name."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                head, _, rest = (folder / "stat").read_text().rpartition(")")
                fields = rest.split()
                yield (int(folder.name), head.partition("(")[2]), int(fields[11]) + int(fields[12])
