"""Plans that wait to be stored, by flow, and whose turn it is: as API Priority and Fairness does it in kube-apiserver.

A flow is what one user does to one kind of object by one verb (the empty flow: what a gateway does by itself). Flows take
turns, one plan each, so a plan waits for those before it in its own flow, and for one of each other flow before each of them. A
flow is light if it had fewer than LIGHT_WRITES lately: its writes are stored beside the batches of others, one by one, so they
wait neither for the next batch nor for what else is in it.

In: plans in the order of arrival. Out: the plans of the next batch, or those to be stored beside one: never two of a subject,
and none of a subject that is being stored.

Bounds: MAX_PENDING plans, MAX_OF_FLOW of one flow (the empty one has no bound of its own); so there are at most as many flows.
Lately: LIGHT_SECONDS to twice as long.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable

from cotenant.events.envelope import Event
from cotenant.log.contract import WORTH_A_BATCH
from cotenant.log.plans import Outcome, Plan
from cotenant.model.trace_context import CURRENT

MAX_PENDING = 10_000
MAX_OF_FLOW = 2_000
BATCH_MESSAGES = 500
BATCH_BYTES = 8 << 20
LIGHT_WRITES = 64
LIGHT_SECONDS = 1.0


class Overloaded(Exception):  # noqa: N818 - answered with 503, not a fault
    """More plans or bytes are waiting than the bounds allow, or this plan has waited too long: it is not stored."""


class FlowFull(Overloaded):
    """Too many plans of one flow are waiting: this one is not stored, those of others are."""


class PendingPlan:
    """A plan without an answer yet."""

    __slots__ = ("actor", "done", "events", "flow", "plan", "sent", "since", "trace", "weight_bytes")

    def __init__(self, plan: Plan, actor: str, flow: str, done: asyncio.Future[Outcome], since: float) -> None:
        self.plan = plan
        self.actor = actor
        self.flow = flow
        self.done = done
        self.trace = CURRENT.get()
        """Of the request that submitted it."""
        self.weight_bytes = plan.weight_bytes
        self.events: tuple[Event, ...] = ()
        self.sent = False
        self.since = since

    @property
    def subjects(self) -> Iterable[str]:
        """What it writes to."""
        return (write.subject for write in self.plan.writes)


class WriteQueue:
    """See the module. `is_over` takes a plan out of the queue for another reason; it is asked when its turn comes."""

    def __init__(self, is_over: Callable[[PendingPlan], bool]) -> None:
        self._is_over = is_over
        self._flows: OrderedDict[str, deque[PendingPlan]] = OrderedDict()
        """The one whose turn it is first."""
        self._waiting = 0
        self._subjects: set[str] = set()
        """Those that are being stored."""
        self._window = 0
        self._came: Counter[str] = Counter()
        self._came_before: Counter[str] = Counter()
        self.refused_of_flows = 0

    def __len__(self) -> int:
        return self._waiting

    @property
    def longest(self) -> int:
        """How many plans of one flow wait, at most."""
        return max(map(len, self._flows.values()), default=0)

    @property
    def flows(self) -> int:
        """Of how many flows plans wait."""
        return len(self._flows)

    def add(self, pending: PendingPlan) -> None:
        """Let a plan wait for its turn. Raises Overloaded, FlowFull."""
        flow = pending.flow
        if self._waiting >= MAX_PENDING:
            raise Overloaded(f"{MAX_PENDING} writes are waiting for the log already")
        queue = self._flows.get(flow)
        if queue is None:
            queue = self._flows[flow] = deque()
        elif flow and len(queue) >= MAX_OF_FLOW:
            self.refused_of_flows += 1
            raise FlowFull(f"{MAX_OF_FLOW} writes like this one are waiting for the log already")
        queue.append(pending)
        self._waiting += 1
        window = int(pending.since / LIGHT_SECONDS)
        if window != self._window:
            self._came_before = self._came if window == self._window + 1 else Counter()
            self._window, self._came = window, Counter()
        self._came[flow] += 1

    def _is_light(self, flow: str) -> bool:
        return self._came[flow] + self._came_before[flow] < LIGHT_WRITES

    def take(self) -> list[PendingPlan]:
        """Return the next batch."""
        return self._take(deque(self._flows), BATCH_MESSAGES)

    def take_beside(self) -> list[PendingPlan]:
        """Return what is stored beside a batch, one by one: some plans of light flows."""
        return self._take(deque(flow for flow in self._flows if self._is_light(flow)), WORTH_A_BATCH - 1)

    def stored(self, batch: Iterable[PendingPlan]) -> None:
        """These are stored, or refused."""
        for pending in batch:
            self._subjects.difference_update(pending.subjects)

    def _take(self, turns: deque[str], most: int) -> list[PendingPlan]:
        batch: list[PendingPlan] = []
        subjects = set(self._subjects)
        later: dict[str, list[PendingPlan]] = {}
        messages = weight_bytes = 0
        while turns and messages < most:
            flow = turns.popleft()
            pending = self._next(flow, subjects, later)
            if pending is None:
                continue
            count = len(pending.plan.writes)
            # A plan larger than a batch goes alone, but not beside another one.
            fits = messages + count <= most and weight_bytes + pending.weight_bytes <= BATCH_BYTES
            if not fits and (batch or most < WORTH_A_BATCH):
                self._flows[flow].appendleft(pending)
                self._waiting += 1
                continue
            subjects.update(pending.subjects)
            batch.append(pending)
            messages += count
            weight_bytes += pending.weight_bytes
            self._flows.move_to_end(flow)
            turns.append(flow)
        for flow, some in later.items():
            self._flows[flow].extendleft(reversed(some))
            self._waiting += len(some)
        for flow in [flow for flow, queue in self._flows.items() if not queue]:
            del self._flows[flow]
        for pending in batch:
            self._subjects.update(pending.subjects)
        return batch

    def _next(self, flow: str, subjects: set[str], later: dict[str, list[PendingPlan]]) -> PendingPlan | None:
        """Take the first plan of a flow that writes to none of these subjects; those before it follow `later`."""
        queue = self._flows[flow]
        while queue:
            pending = queue.popleft()
            self._waiting -= 1
            if any(subject in subjects for subject in pending.subjects):
                later.setdefault(flow, []).append(pending)
                subjects.update(pending.subjects)
            elif not self._is_over(pending):
                return pending
        return None
