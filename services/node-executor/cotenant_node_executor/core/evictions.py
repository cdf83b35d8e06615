"""The evictor: pods that strategies evict.

In: evictions as strategies order them, placements and the pods' reports as they are folded. Out: the eviction of a pod while it
is placed, which its lifecycle carries out (`pod_lifecycle`). An order for a pod that is not placed, is terminating, has ended,
or is already being evicted is ignored, so a strategy may repeat it every cycle.

The pod's report says from the beginning who evicts it, when and why, so evictions survive a restart: the next executor finishes
them, and counts them for cool-down and rate. A time in the future counts as now.

There is one evictor on a node. For each strategy it keeps its cool-down, counted from its last evictions and, where the
strategy says so, from the start; and its rate: at most `evictions_a_minute` a minute. An eviction that waits begins in a later
cycle if it is still ordered then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from cotenant.events.node.runs import EvictionBegun, RunStatus
from cotenant.events.placements import PlacementPhase
from cotenant_node_executor.core.placed import Key
from cotenant_node_executor.core.placed_pods import PlacedPods
from cotenant_node_executor.strategies.strategy import Evict, Strategy

RATE_WINDOW = timedelta(minutes=1)


class Evictions:
    """Bound: the placed pods, and the evictions of the last minute."""

    def __init__(self, strategies: Mapping[str, Strategy]) -> None:
        self._strategies = strategies
        self._of_uid: dict[str, EvictionBegun] = {}
        self._begun: dict[str, dict[str, datetime]] = {}
        """When each strategy began evictions, by pod: the last one, and those of the minute before it."""
        self.count: Counter[str] = Counter()
        """Evictions begun, by strategy."""
        self._started: datetime | None = None
        """When the first cycle began."""
        self.waiting: dict[str, str] = {}
        """Why evictions that are ordered wait, by strategy."""

    def of(self, uid: str) -> Evict | None:
        """The eviction of a pod, as an order."""
        begun = self._of_uid.get(uid)
        return None if begun is None else Evict(uid, begun.why, begun.grace_seconds)

    def begun(self, uid: str) -> EvictionBegun | None:
        """The eviction of a pod, as its report says it."""
        return self._of_uid.get(uid)

    @property
    def uids(self) -> frozenset[str]:
        """The pods that are being evicted."""
        return frozenset(self._of_uid)

    def begin(
        self,
        ordered: Iterable[tuple[str, Evict]],
        pods: PlacedPods,
        last: Mapping[str, RunStatus],
        now: datetime,
        offer: str = "",
    ) -> tuple[tuple[Key, str, Evict], ...]:
        """Begin the new evictions, and return each with its pod's name and strategy. `last`: the last reports by uid;
        `offer`: the event of what the node offers."""
        begun: list[tuple[Key, str, Evict]] = []
        self._started = self._started or now
        self.waiting.clear()
        before = {name: self._times(name, now) for name in self._begun}
        for strategy, order in ordered:
            placed, report = pods.of_uid(order.uid), last.get(order.uid)
            if placed is None or placed.refusal or placed.placement.phase is PlacementPhase.TERMINATING:
                continue
            if order.uid in self._of_uid or (report is not None and report.phase.terminal):
                continue
            why = self._refusal(strategy, before.get(strategy, ()), now)
            if why:
                self.waiting.setdefault(strategy, why)
                continue
            self._note(strategy, order.uid, now)
            self._of_uid[order.uid] = EvictionBegun(
                strategy=strategy,
                at=now,
                why=order.why,
                grace_seconds=order.grace_seconds,
                offer=offer if order.by_offer else "",
            )
            self.count[strategy] += 1
            begun.append(((placed.placement.namespace, placed.placement.name), strategy, order))
        return tuple(begun)

    def none_ordered(self, now: datetime) -> tuple[tuple[Key, str, Evict], ...]:
        """No strategy orders an eviction, so none waits."""
        self._started = self._started or now
        if self.waiting:
            self.waiting.clear()
        return ()

    def found(self, report: RunStatus, *, ended: bool) -> None:
        """A pod's report names an eviction, which may be of an earlier executor. `ended`: the pod, or the report, has."""
        begun = report.eviction
        if begun is None:
            return
        self._note(begun.strategy, report.uid, begun.at)
        if not ended:
            self._of_uid.setdefault(report.uid, begun)

    def take_over(self, former: Evictions, pods: PlacedPods) -> None:
        """Go on with the evictions that another evictor of this node began, and count them."""
        self._started, self.count = former._started, former.count
        for strategy, times in former._begun.items():
            for uid, at in times.items():
                self._note(strategy, uid, at)
        for uid, begun in former._of_uid.items():
            if pods.of_uid(uid) is not None:
                self._of_uid.setdefault(uid, begun)

    def _note(self, strategy: str, uid: str, at: datetime) -> None:
        times = self._begun.setdefault(strategy, {})
        times.setdefault(uid, at)
        last = max(times.values())
        self._begun[strategy] = {each: time for each, time in times.items() if last - time < RATE_WINDOW}

    def _times(self, strategy: str, now: datetime) -> tuple[datetime, ...]:
        """When the strategy began evictions, ascending."""
        times = {uid: min(at, now) for uid, at in self._begun[strategy].items()}
        self._begun[strategy] = times
        return tuple(sorted(times.values()))

    def _refusal(self, strategy: str, before: tuple[datetime, ...], now: datetime) -> str:
        """Why a strategy may evict no further pod now; empty: it may. `before`: its evictions of earlier cycles."""
        of = self._strategies[strategy]
        cool_down = timedelta(seconds=of.cool_down_seconds)
        if before and now - before[-1] < cool_down:
            return f"{of.cool_down_seconds:g} s between its evictions"
        if of.cools_down_first and self._started is not None and now - self._started < cool_down:
            return f"{of.cool_down_seconds:g} s between the executor's start and its first eviction"
        recent = [at for at in self._begun.get(strategy, {}).values() if now - at < RATE_WINDOW]
        return f"at most {of.evictions_a_minute} evictions a minute" if len(recent) >= of.evictions_a_minute else ""

    def forget(self, uid: str) -> None:
        """The pod is no longer placed."""
        self._of_uid.pop(uid, None)
