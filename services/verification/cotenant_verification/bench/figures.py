"""The figures of a benchmark, for JSON and for people."""

from __future__ import annotations

import msgspec


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds."""

    p50: float
    p99: float
    max: float


class BenchResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a benchmark; figures that a run does not have are left out. Times are in seconds unless the name says
    otherwise."""

    pods_per_second: int | None = None
    placed: int
    waiting: int
    verified: bool
    wrong: tuple[str, ...] = ()
    submit_to_placed_ms: Latency | None = None
    running: int | None = None
    """Pods that their nodes reported as running."""
    submit_to_running_ms: Latency | None = None
    running_per_second: int | None = None
    """From first submit to the last node's report."""
    seconds: float | None = None
    batches: int | None = None
    mean_batch: float | None = None
    largest_batch: int | None = None
    conflicts: int | None = None
    loads: int | None = None
    """How often the scheduler loaded its state: once unless it fell too far behind, or was restarted."""
    decide_us_per_pod: float | None = None
    fold_us_per_pod: float | None = None
    fold_back_us_per_pod: float | None = None
    cpu_ms_per_pod: dict[str, float] = {}
    """By process, from the first submit on."""
    stack_cpu_ms_per_pod: float | None = None
    """The sum of these, without the processes that make the load and watch it."""
    peak_memory_mib: dict[str, int] = {}
    first_placement_seconds: float | None = None
    """From the start of the new process, including interpreter and imports."""
    first_placement_cpu_seconds: dict[str, float] = {}
    """CPU time of the processes in that time; on a machine with other load more telling than wall time."""


def latency(milliseconds: list[float]) -> Latency | None:
    """The percentiles of a list of latencies (nearest rank)."""
    if not milliseconds:
        return None
    ordered = sorted(milliseconds)

    def at(share: float) -> float:
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 2)

    return Latency(p50=at(0.5), p99=at(0.99), max=round(ordered[-1], 2))


def lines(figures: msgspec.Struct) -> list[str]:
    """One line a figure."""
    found = []
    for name, value in msgspec.to_builtins(figures).items():
        if value is None:
            continue
        if isinstance(value, dict):
            found += [f"{name}.{key} {part}" for key, part in value.items()]
        elif isinstance(value, (list, tuple)):
            found += [f"{name}: {part}" for part in value]
        else:
            found.append(f"{name} {value}")
    return found
