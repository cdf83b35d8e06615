"""Watches suppression on the nodes themselves, at each of their samples: for promises 8 and 9.

In: a node's executor after a step, what it said it did. Out: where the best-effort bound lags behind the services, or flutters;
where services are slower (`latency`) than with what best-effort may use; what a kernel refused. The bound that
the rule wants: capacity * threshold - services' use - system (the reserve if that is more), of the sample that the step
was made on; what is in force may be above it for two samples at most, and for the width of one CPU by the cpuset policy.
"""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import datetime, timedelta
from itertools import pairwise

from cotenant.events.envelope import Event
from cotenant.events.execution import Execution
from cotenant_console.chaos.latency import p99_us
from cotenant_console.chaos.nodes import Control
from cotenant_node_executor.kernel.cpulist import parse_cpu_list

STRETCH = timedelta(seconds=30)
FEW = 4
KEPT = 200
PERIODS = 2
CONSTANT = 300
"""Milli-CPU by which the wanted bound may move and count as constant."""


class Suppressions:
    """What happened on every node."""

    def __init__(self) -> None:
        self._over: dict[str, int] = defaultdict(int)
        self._late: list[tuple[str, str]] = []
        self.changes = 0
        """Suppressions that nodes said they made."""
        self._seen: dict[str, deque[tuple[datetime, int, int]]] = defaultdict(lambda: deque(maxlen=KEPT))
        self.periods = 0
        """Control periods that were checked."""
        self._slow: dict[str, int] = defaultdict(int)
        self.slowed: list[tuple[str, str]] = []
        """Services that waited for best-effort work longer than the rule lets them."""
        self.refused: list[tuple[str, str]] = []
        """Writes that a kernel refused."""
        self.worst_permille = 1_000
        """The most that best-effort work has made a service's p99 longer, of what it is without."""

    def see(self, event: Event) -> None:
        """Take what a node did."""
        data = event.data
        if isinstance(data, Execution):
            self.changes += data.topic == "suppress"
            if data.topic == "refusals" and any(change.error for change in data.changes) and len(self.refused) < KEPT:
                self.refused.append((data.node, data.summary))

    def sampled(self, name: str, control: Control, capacity_milli: int, now: datetime) -> None:
        """Take a control period: what the rule wanted, and what is in force after it."""
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
        self._over[name] = self._over[name] + 1 if bound > most else 0
        if self._over[name] > PERIODS and len(self._late) < 10:
            self._late.append(
                (name, f"{self._over[name]} control periods until {now} best-effort may use {bound}m, by rule {wanted_milli}m")
            )

        self._judge_latency(name, control, most, capacity_milli, now)

    def _judge_latency(self, name: str, control: Control, most: int, capacity_milli: int, now: datetime) -> None:
        """With what best-effort used, no service is slower than with the most that it may use."""
        slower = ""
        for used, available in control.services:
            alone = p99_us(used, available, 0, capacity_milli)
            present = p99_us(used, available, control.used_milli, capacity_milli)
            self.worst_permille = max(self.worst_permille, present * 1_000 // alone)
            bound = p99_us(used, available, most, capacity_milli)
            if present > bound:
                slower = f"p99 of a service on {name} is {present} us at {now}, by rule {bound} us at most, alone {alone} us"
        self._slow[name] = self._slow[name] + 1 if slower else 0
        if self._slow[name] > PERIODS and len(self.slowed) < KEPT:
            self.slowed.append((name, slower))

    def late(self) -> list[tuple[str, str]]:
        """Where the bound came too late."""
        return self._late

    def flutter(self, now: datetime) -> dict[str, int]:
        """Nodes whose bound went to and fro while the rule wanted the same: node to turns."""
        found: dict[str, int] = {}
        for name, seen in self._seen.items():
            recent = [(wanted, bound) for at, wanted, bound in seen if at > now - STRETCH]
            wanted = [entry[0] for entry in recent]
            if not recent or max(wanted) - min(wanted) > CONSTANT:
                continue
            steps = [after[1] - before[1] for before, after in pairwise(recent) if after[1] != before[1]]
            turns = sum((one > 0) != (other > 0) for one, other in pairwise(steps))
            if turns > FEW:
                found[name] = turns
        return found
