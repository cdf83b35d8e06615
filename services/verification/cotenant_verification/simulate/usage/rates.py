"""Request rates as the load of services: a trace, or one of the same form that is generated.

In: a CSV file with the columns `timestamp_anon` (seconds), `value` (sampled requests a second) and `request_type`, one row a
container and moment (Alibaba cluster-trace-v2026-GenAI has this form). Out: for each request type, which stands for one
service, its rate on a grid of STEP_SECONDS, divided by its own 99th percentile over the whole trace.

Rows of one type and moment are summed. A moment holds until the usual distance to the next (the median); where the next is
further away there were no requests, which a sampled count shows as no row: the rate is 0.

`repeated` makes days of a trace: its smoothed course by time of day, with another level (standard deviation 10 %) and shift (10
minutes) each day, two thirds of it on the last two days of seven, and the sampling noise drawn again: a count of quanta, a
quantum being the smallest value of the trace. These days are made, not measured.

Bounds: MAX_ROWS rows, MAX_DAYS days.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

STEP_SECONDS = 15
DAY_STEPS = 86_400 // STEP_SECONDS
COLUMNS = ("timestamp_anon", "value", "request_type")
MAX_ROWS = 2_000_000
MAX_DAYS = 60
GENERATED = "generated"

_SMOOTHING_STEPS = 80
_LEVEL_DEVIATION = 0.1
_SHIFT_DEVIATION_STEPS = 40
_WEEKEND_LEVEL = 2 / 3


class RateError(Exception):
    """The trace cannot be read; the text states the file, the line and what is wrong there."""


class Rates(msgspec.Struct, frozen=True):
    """`rates`: (services, steps), 1 is the 99th percentile of a service. `begin`: seconds since the epoch of the first step.
    `quanta`: the smallest rate of each service that a sample can show."""

    services: tuple[str, ...]
    rates: Floats
    quanta: Floats
    begin: float

    @property
    def steps(self) -> int:
        """Length of the grid."""
        return int(self.rates.shape[1])


def read_rates(path: Path) -> Rates:
    """The rates in a file. Raises RateError."""
    sums: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
            if missing:
                raise RateError(f"{path}: column {', '.join(missing)} is missing")
            for number, cells in enumerate(reader):
                if number >= MAX_ROWS:
                    raise RateError(f"{path}: more than {MAX_ROWS} rows")
                place = f"{path}:{reader.line_num}"
                value = _number(cells["value"], place, "value")
                sums[cells["request_type"] or ""][_number(cells["timestamp_anon"], place, "timestamp_anon")] += value
    except OSError as error:
        raise RateError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise RateError(f"{path}: is not a CSV file: {error}") from error
    if not sums or max(len(moments) for moments in sums.values()) < 2:
        raise RateError(f"{path}: needs at least two moments of one request type")
    return _on_grid({name: dict(moments) for name, moments in sums.items()}, path)


def _number(text: str | None, place: str, column: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise RateError(f"{place}: {column} is {text!r}, not a number of at least 0")
    return value


def _on_grid(sums: dict[str, dict[float, float]], path: Path) -> Rates:
    begin = min(min(moments) for moments in sums.values())
    span = max(max(moments) for moments in sums.values()) - begin
    if span > MAX_DAYS * 86_400:
        raise RateError(f"{path}: spans {span / 86_400:.0f} days: at most {MAX_DAYS}")
    held = min(float(np.median(np.diff(sorted(moments)))) for moments in sums.values() if len(moments) > 1)
    steps = max(math.ceil((span + held) / STEP_SECONDS), 1)
    names = tuple(sorted(sums))
    rates = np.zeros((len(names), steps))
    quanta = np.ones(len(names))
    for row, name in enumerate(names):
        for moment, value in sums[name].items():
            first = round((moment - begin) / STEP_SECONDS)
            rates[row, first : max(round((moment - begin + held) / STEP_SECONDS), first + 1)] = value
        quanta[row] = min((value for value in sums[name].values() if value > 0), default=1.0)
    return normalised(names, rates, quanta, begin)


def normalised(services: tuple[str, ...], rates: Floats, quanta: Floats, begin: float) -> Rates:
    """Rates (float64) relative to their own 99th percentile; where that is 0 to the highest."""
    tops = np.quantile(rates, 0.99, axis=1)
    tops = np.where(tops > 0, tops, rates.max(axis=1))
    tops = np.where(tops > 0, tops, 1.0)
    return Rates(services, rates / tops[:, np.newaxis], quanta / tops, begin)


def generated(seed: int, days: float = 1.0) -> Rates:
    """Rates of two services with the form of a working day: two humps, a dip at noon, a quiet night, and sampling noise."""
    hours = np.arange(round(days * DAY_STEPS)) * STEP_SECONDS / 3600 % 24
    course = np.exp(-(((hours - 10.5) / 1.6) ** 2)) + np.exp(-(((hours - 16.0) / 2.2) ** 2))
    course += 0.3 * np.exp(-(((hours - 21.0) / 2.0) ** 2)) + 0.02
    random = np.random.default_rng([seed, 1])
    quanta = np.array([0.04, 0.02])
    return _sampled(("chat", "search"), np.stack([course, course]), quanta, 0.0, random)


def repeated(rates: Rates, days: int, seed: int) -> Rates:
    """So many days of the same form."""
    if not 1 <= days <= MAX_DAYS:
        raise RateError(f"{days} days: must be 1 to {MAX_DAYS}")
    course = _day_of(rates)
    random = np.random.default_rng([seed, 2])
    parts = []
    for day in range(days):
        level = float(np.clip(random.normal(1.0, _LEVEL_DEVIATION), 0.7, 1.3)) * (_WEEKEND_LEVEL if day % 7 >= 5 else 1.0)
        shift = round(random.normal(0.0, _SHIFT_DEVIATION_STEPS))
        parts.append(np.roll(course, shift, axis=1) * level)
    monday = 4 * 86_400.0
    return _sampled(rates.services, np.concatenate(parts, axis=1), rates.quanta, monday, random)


def _day_of(rates: Rates) -> Floats:
    """The smoothed course of a day from 00:00, (services, DAY_STEPS); what the trace lacks of it is joined by a line."""
    offset = round(rates.begin % 86_400 / STEP_SECONDS)
    window = np.ones(_SMOOTHING_STEPS) / _SMOOTHING_STEPS
    sums, counts = np.zeros((len(rates.services), DAY_STEPS)), np.zeros(DAY_STEPS)
    places = (np.arange(rates.steps) + offset) % DAY_STEPS
    np.add.at(counts, places, 1)
    for row in range(len(rates.services)):
        np.add.at(sums[row], places, rates.rates[row])
    seen = np.flatnonzero(counts)
    around = np.arange(DAY_STEPS)
    course = np.stack([np.interp(around, seen, line[seen] / counts[seen], period=DAY_STEPS) for line in sums])
    wide = np.concatenate([course[:, -_SMOOTHING_STEPS:], course, course[:, :_SMOOTHING_STEPS]], axis=1)
    smooth = np.stack([np.convolve(line, window, mode="same") for line in wide])
    return smooth[:, _SMOOTHING_STEPS:-_SMOOTHING_STEPS]


def _sampled(
    services: tuple[str, ...], course: Floats, quanta: Floats, begin: float, random: np.random.Generator
) -> Rates:
    """Counts of quanta around a course, four steps at a time."""
    held = 4
    means = course[:, ::held] / quanta[:, np.newaxis]
    counts = random.poisson(means) * quanta[:, np.newaxis]
    return normalised(services, np.repeat(counts, held, axis=1)[:, : course.shape[1]], quanta, begin)
