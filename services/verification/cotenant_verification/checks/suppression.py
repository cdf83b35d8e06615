"""Observes suppression on the nodes themselves, at each of their samples: for promises 8 and 9.

In: a node's executor after a step, its reported actions. Out: where the best-effort bound lags behind the services, or flaps;
where services are slower (`latency`) than with the allowed best-effort usage; refusals by a kernel. The bound
by the rule: capacity * threshold - services' use - system (the reserve if that is more), of the sample that the step
was made on; the effective bound may be above it for two control periods at most, and by the width of one CPU.
"""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import datetime, timedelta
from itertools import takewhile

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.node.execution import Execution
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_verification.checks.latency import p99_us
from cotenant_verification.harness.nodes import Control

STRETCH = timedelta(seconds=30)
FEW = 4
KEPT = 200
PERIODS = 2
CONTROL = timedelta(seconds=1)
"""One control period."""
SETTLING = timedelta(seconds=30)
STEADY = 50
"""Milli-CPU within which two desired bounds count as equal."""
CONSTANT = 300
"""Milli-CPU by which the desired bound may vary and count as constant."""


class _Steady(msgspec.Struct):
    """A stretch in which the rule demands the same."""

    low: int
    high: int
    since: datetime
    bound: int
    changes: int = 0


class SuppressionWatch:
    """The observations on every node."""

    def __init__(self) -> None:
        self._over: dict[str, tuple[datetime, int]] = {}
        """Node to the time and the number of samples since which best-effort work has had more than the rule allows."""
        self._steady: dict[str, _Steady] = {}
        self.late: list[tuple[str, str]] = []
        """Findings: the bound came too late."""
        self._seen: dict[str, deque[tuple[datetime, int, int]]] = defaultdict(lambda: deque(maxlen=KEPT))
        self.periods = 0
        """Control periods that were checked."""
        self._slow: dict[str, int] = defaultdict(int)
        self.slowed: list[tuple[str, str]] = []
        """Services that waited for best-effort work longer than the rule allows."""
        self.refused: list[tuple[str, str]] = []
        """Writes that a kernel refused."""
        self.unsettled: list[tuple[str, str]] = []
        """Findings: the bound changed again and again under constant load."""
        self.worst_permille = 1_000
        """The largest factor by which best-effort work has raised a service's p99."""

    def see(self, event: Event) -> None:
        """Take a node's actions."""
        data = event.data
        if not isinstance(data, Execution) or data.topic != "refusals" or len(self.refused) >= KEPT:
            return
        if any(change.error for change in data.changes):
            self.refused.append((data.node, data.summary))

    def sampled(self, name: str, control: Control, capacity_milli: int, now: datetime) -> None:
        """Take a control period: the rule's bound, and the effective one after it."""
        self.periods += 1
        wanted_milli, quota, cpus = control.wanted_milli, control.quota, control.cpus
        bound = capacity_milli
        if quota not in ("", "-1", "max"):
            bound = min(bound, int(quota) // 100)
        elif cpus:
            bound = min(bound, len(parse_cpu_list(cpus)) * 1000)
        self._seen[name].append((now, wanted_milli, bound))
        # Two CPUs (one core) at least, a twentieth of the capacity: the policies' own floors; and the width of a CPU.
        most = max(wanted_milli, 2_000, capacity_milli // 20) + 2_000
        self._judge_delay(name, bound, most, wanted_milli, now)
        self._judge_changes(name, bound, wanted_milli, now)
        self._judge_latency(name, control, most, capacity_milli, now)

    def _judge_delay(self, name: str, bound: int, most: int, wanted_milli: int, now: datetime) -> None:
        """Two control periods after the services' usage rose, the bound is what that leaves."""
        if bound <= most:
            self._over.pop(name, None)
            return
        since, samples = self._over.get(name, (now, 0))
        self._over[name] = since, samples + 1
        if samples and now - since >= PERIODS * CONTROL and len(self.late) < KEPT:
            self.late.append((name, f"from {since} until {now} best-effort may use {bound}m, by rule {wanted_milli}m"))

    def _judge_changes(self, name: str, bound: int, wanted_milli: int, now: datetime) -> None:
        """While the rule demands the same and had time to settle, the bound changes only a few times."""
        steady = self._steady.get(name)
        low = min(steady.low, wanted_milli) if steady is not None else wanted_milli
        high = max(steady.high, wanted_milli) if steady is not None else wanted_milli
        if steady is None or high - low > STEADY:
            self._steady[name] = _Steady(wanted_milli, wanted_milli, now, bound)
            return
        steady.low, steady.high = low, high
        steady.changes += bound != steady.bound and now - steady.since > SETTLING
        steady.bound = bound
        if steady.changes > FEW and len(self.unsettled) < KEPT:
            text = f"{steady.changes} changes of the bound since {steady.since}, while the rule demands {low}m to {high}m"
            self.unsettled.append((name, text))

    def _judge_latency(self, name: str, control: Control, most: int, capacity_milli: int, now: datetime) -> None:
        """With what best-effort work used, no service is slower than with the most that it may use."""
        slower = ""
        # Work that did not run delays nothing.
        for used, available in control.services if control.used_milli else ():
            alone = p99_us(used, available, 0, capacity_milli)
            present = p99_us(used, available, control.used_milli, capacity_milli)
            self.worst_permille = max(self.worst_permille, present * 1_000 // alone)
            bound = p99_us(used, available, most, capacity_milli)
            if present > bound:
                slower = f"p99 of a service on {name} is {present} us at {now}, by rule {bound} us at most, alone {alone} us"
        self._slow[name] = self._slow[name] + 1 if slower else 0
        if self._slow[name] > PERIODS and len(self.slowed) < KEPT:
            self.slowed.append((name, slower))

    def flutter(self, now: datetime) -> dict[str, int]:
        """Nodes whose bound reversed more often than the rule demanded: node to the excess reversals."""
        found: dict[str, int] = {}
        for name, seen in self._seen.items():
            recent = list(takewhile(lambda entry: entry[0] > now - STRETCH, reversed(seen)))[::-1]
            wanted = [entry[1] for entry in recent]
            if not recent or max(wanted) - min(wanted) > CONSTANT:
                continue
            reversals = _reversals([bound for _, _, bound in recent], 0) - _reversals(wanted, STEADY)
            if reversals > FEW:
                found[name] = reversals
        return found


def _reversals(values: list[int], ignored: int) -> int:
    """How often values that moved one way by more than `ignored` then moved the other way by more than that."""
    reversals, heading, low, high = 0, 0, values[0], values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
        way = 1 if value - low > ignored and heading <= 0 else -1 if high - value > ignored and heading >= 0 else 0
        if way:
            reversals += heading != 0
            heading = way
            low = high = value
    return reversals
