"""Low and high bounds of a node: a pool's percentages converted to the node's amounts.

In: the pool's percentage maps, a node's allocatable, and in deviation mode the mean usage of the measured nodes.
Out: two maps of amounts (cpu in milli-cores, everything else in plain units).

Resources of a pool are those in any of its maps, plus memory. A resource without any value never decides: both sides become
100 % (in deviation mode 0, which means the full allocatable). A high value without a low one is unchanged, and a low value
without a high one gets the high value 100 %: configured thresholds are never overwritten.

    amount[r] = trunc(percent[r] * 0.01 * allocatable[r])
    deviation: low = clamp(mean[r] - low[r], 0, 100), high = clamp(mean[r] + high[r], 0, 100) percent;
               low[r] == 0 makes both amounts the full allocatable
    mean[r] = sum over measured nodes with allocatable[r] != 0 of usage[r]/allocatable[r]*100, over all measured nodes

Source: koord-descheduler LowNodeLoad, utilisation rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cotenant.model.names import MEMORY

Percentages = Mapping[str, float]
Amounts = Mapping[str, int]

_FULL = 100.0


class Band(msgspec.Struct, frozen=True):
    """Percentages, with every resource of the pool on both sides."""

    low: dict[str, float]
    high: dict[str, float]


class BandAmounts(msgspec.Struct, frozen=True):
    """The band of one node in amounts."""

    low: dict[str, int]
    high: dict[str, int]


def pool_resources(*maps: Percentages) -> tuple[str, ...]:
    """Return the resources that a pool compares, sorted: all in its maps, plus memory."""
    return tuple(sorted({MEMORY, *(name for each in maps for name in each)}))


def fill_band(low: Percentages, high: Percentages, resources: Sequence[str], *, deviation: bool) -> Band:
    """Return both sides with a value for each of `resources`."""
    absent = 0.0 if deviation else _FULL
    return Band(
        low={name: float(low.get(name, absent)) for name in resources},
        high={name: float(high.get(name, absent if deviation and name not in low else _FULL)) for name in resources},
    )


def mean_percent(nodes: Sequence[tuple[Amounts, Amounts]], resources: Sequence[str]) -> dict[str, float]:
    """Return the mean usage in percent per resource over (usage, allocatable) of all measured nodes."""
    means: dict[str, float] = {}
    for name in resources:
        total = 0.0
        for usage, allocatable in nodes:
            capacity = allocatable.get(name, 0)
            if capacity:
                total += usage.get(name, 0) / capacity * _FULL
        means[name] = total / len(nodes) if nodes else 0.0
    return means


def _clamp(percent: float) -> float:
    return min(max(percent, 0.0), _FULL)


def band_percent(band: Band, means: Percentages | None) -> Band:
    """Return the percentages in force: as configured, or around the mean in deviation mode (`means` given)."""
    if means is None:
        return band
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    for name, below in band.low.items():
        if below == 0:
            low[name] = high[name] = _FULL
            continue
        low[name] = _clamp(means.get(name, 0.0) - below)
        high[name] = _clamp(means.get(name, 0.0) + band.high[name])
    return Band(low=low, high=high)


def band_amounts(percent: Band, allocatable: Amounts) -> BandAmounts:
    """Return the amounts of one node, truncated."""
    return BandAmounts(
        low={name: int(value * 0.01 * allocatable.get(name, 0)) for name, value in percent.low.items()},
        high={name: int(value * 0.01 * allocatable.get(name, 0)) for name, value in percent.high.items()},
    )
