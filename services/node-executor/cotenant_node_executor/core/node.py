"""One node's cycle, without I/O of its own: observe, plan, carry out, report.

In: events of the node's subjects, the time, and a machine (the kernel and processes, or the simulation). Out: events to
store: reports on LOG, usage on USAGE, completed actions on EXECUTION. The order within a cycle matters: groups are created
and their values written before a process starts in them, and a report contains only what was observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
from msgspec import Struct

from cotenant.events.envelope import Event
from cotenant.events.node.conditions import TAINT_MEMORY_PRESSURE
from cotenant.events.node.execution import Execution
from cotenant.events.node.runs import ExecutorStatus, RunStatus
from cotenant.log.contract import USAGE
from cotenant.log.traces import Traces
from cotenant.model.subjects import executor_subject, usage_subject
from cotenant.model.trace_context import continued
from cotenant_node_executor.core.composer import Composed
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.executions import NEWEST_USAGE, RUNTIME, Executions
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.core.placed import Key
from cotenant_node_executor.core.usage_window import UsageWindow
from cotenant_node_executor.runtime.interface import Order, PodToRun, Runtime
from cotenant_node_executor.sampling.snapshot import TriggerCheck
from cotenant_node_executor.sampling.wanted import SamplingOptions
from cotenant_node_executor.strategies.strategy import Reclaim
from cotenant_node_executor.targets.interface import Reclaimed, WriteReport

HELD_TRACES = 500
"""The least number of messages whose traces are remembered; those of present placements always are."""
EARLY_REPORT = timedelta(seconds=5)
"""After a suppression, usage is published at once but at most this often, so that the event's cause is the sample behind it."""


class Machine(Protocol):
    """The machine that a node runs on."""

    @property
    def runtime(self) -> Runtime: ...

    def observe(self, now: datetime, *, sample: bool) -> Observation:
        """Observe the machine; without `sample` the last snapshot is returned again."""
        ...

    @property
    def wakes(self) -> Sequence[int]:
        """Descriptors that are readable when the next cycle has something new to see."""
        ...

    @property
    def urgent(self) -> int | None:
        """A descriptor that is readable when a `look` is due; None: never."""
        ...

    @property
    def wants_sample(self) -> bool:
        """Whether the next cycle should sample, however new the last sample is."""
        ...

    def look(self) -> TriggerCheck:
        """Check urgent conditions between two cycles; this is cheap."""
        ...

    def measure(self, wanted: SamplingOptions) -> None:
        """Set what is measured from now on, besides node and pods."""
        ...

    def create(self, groups: Sequence[str]) -> None:
        """Create groups, parents first."""
        ...

    def write(self, targets: Composed) -> WriteReport:
        """Write every target whose value differs."""
        ...

    def carry_out(self, orders: Sequence[Order], now: datetime) -> None:
        """Pass orders to the runtime."""
        ...

    def reclaim(self, orders: Sequence[tuple[str, Reclaim]]) -> None:
        """Begin to reclaim memory in the background; an order that comes while one is in progress is dropped."""
        ...

    def reclaimed(self) -> Sequence[Reclaimed]:
        """What was reclaimed since the last call."""
        ...


class Periods(Struct, frozen=True):
    """How often a node is sampled, and how often usage is published."""

    sample_seconds: float = 1.0
    report_seconds: float = 15.0


class ExecutorNode:
    """A core, its machine and its reports. `status` is the node's report about itself at start."""

    def __init__(self, core: ExecutorCore, machine: Machine, status: ExecutorStatus, periods: Periods) -> None:
        self.core = core
        self.machine = machine
        self._status = status
        self._periods = periods
        self.name = name = core.facts.name
        self._window = UsageWindow(
            name, core.boot, sample_seconds=periods.sample_seconds, report_seconds=periods.report_seconds
        )
        self._executions = Executions(name)
        self._measured: SamplingOptions | None = None
        """The last requested measurements."""
        self._traces: Traces | None = None
        """Of events folded by `apply` and published; None without traces, as in the simulator."""
        self.written_values = self.refused_values = 0
        """Since the process began."""
        self._usage_ref = ""
        self._evicted_by: dict[Key, str] = {}
        """The references of published evictions, by the pod's name, until its end is reported."""
        self._usage_at: datetime | None = None
        self._incarnation = f"node-executor/{name}/{core.boot}"
        self._named = 0
        self._adopted = False
        self._followed: Mapping[str, PodToRun] | None = None
        """The pods that were last passed to the runtime."""
        self._must_observe = True
        """The last cycle changed the machine or had a refusal, so the next one must observe again."""
        self.ordered: Sequence[Order] = ()
        """The last cycle's orders, whose effect a later cycle observes."""

    def take_log(self, why_unknown: str) -> None:
        """Set whether LOG is the one that placed the pods here. Until it is, those without a placement keep running."""
        self.core.keep_orphans(bool(why_unknown))
        self._status = msgspec.structs.replace(self._status, unknown_log=why_unknown)

    def restarted(self) -> ExecutorNode:
        """Return this node on the same machine with an empty core."""
        return ExecutorNode(self.core.fresh(), self.machine, self._status, self._periods)

    def cut_off(self) -> None:
        """LOG feeds this node no longer: its placements may be old. It goes on to write values, to evict and to stop pods, and
        to publish usage and what it does. It starts, removes and reports nothing: that is left to the node that is loaded
        next."""
        self.core.fed = False

    def take_over(self, former: ExecutorNode) -> None:
        """Go on where the incarnation before this one stopped, on the same machine: with its samples, its strategies' memories
        and values, and with the evictions that it began."""
        self.core.take_over(former.core)
        self._evicted_by = former._evicted_by
        self._window, self._usage_ref, self._usage_at = former._window, former._usage_ref, former._usage_at
        self.written_values, self.refused_values = former.written_values, former.refused_values

    def start_marker(self, now: datetime) -> Event:
        """Return the executor's own report. Its delivery marks that every earlier message has been folded."""
        return Event(subject=executor_subject(self.name), data=self._own_status(), time=now)

    def _own_status(self) -> ExecutorStatus:
        """The node's report about itself, with the pressure that its strategies see."""
        status, why = msgspec.structs.replace(self._status, boot=self.core.boot), self.core.memory_pressure
        if not why:
            return status
        taints = (*status.taints, (TAINT_MEMORY_PRESSURE, "", "NoSchedule"))
        return msgspec.structs.replace(status, memory_pressure=why, taints=taints)

    def _condition(self, now: datetime) -> list[Event]:
        """Report the node again if pressure began or ended, not for changed figures alone; repeated until it is stored."""
        known = self.core.own
        if known is None or not self.core.marked or not self.core.fed:
            return []
        if bool(known.memory_pressure) is bool(self.core.memory_pressure):
            return []
        return [self.start_marker(now)]

    def apply(self, event: Event) -> None:
        """Fold one event."""
        self.note(event)
        self.core.apply(event)

    def note(self, event: Event) -> None:
        """Remember the trace of a message: events caused by it continue the trace."""
        if self._traces is None:
            self._traces = Traces(held=HELD_TRACES)
        self._traces.note((event,))

    def trace_of(self, causes: Sequence[str]) -> str:
        """Return the traceparent of the first cause, empty where it is not known."""
        if self._traces is None or not causes:
            return ""
        return self._traces.at(causes[0]) or self.core.pods.trace_of(causes[0])

    def usage_stored(self, ref: str) -> None:
        """Record the reference under which the last usage message is stored."""
        self._usage_ref = ref

    def due(self, now: datetime) -> bool:
        """Whether a cycle has new work although nothing changed on the machine."""
        return self._must_observe or self.core.has_work or self._window.due(now)

    def execution_stored(self, event: Event) -> None:
        """Remember the published eviction of a pod, as a cause of its report."""
        data = event.data
        if isinstance(data, Execution) and data.topic != RUNTIME and self._is_evicted((data.namespace, data.pod)):
            self._evicted_by[data.namespace, data.pod] = event.ref

    def _is_evicted(self, key: Key) -> bool:
        placed = self.core.placed.get(key)
        return placed is not None and self.core.evictions.of(placed.placement.uid) is not None

    def _with_eviction(self, event: Event) -> Event:
        """The reports of an evicted pod follow from the eviction, which names the sample behind it; before that is stored, from
        the newest sample and the policy."""
        data = event.data
        if not isinstance(data, RunStatus) or data.eviction is None or not self._is_evicted((data.namespace, data.name)):
            return event
        ref = self._evicted_by.get((data.namespace, data.name), "")
        known = (ref,) if ref else (self._usage_ref, self.core.slo_ref, data.eviction.offer)
        return msgspec.structs.replace(event, causes=(*event.causes, *(each for each in known if each)))

    @property
    def report_due(self) -> datetime | None:
        """When usage is due next, by the node's clock; None before the first sample."""
        return self._window.next_report

    def identified(self, event: Event, cell: str) -> Event:
        """Return the event with its id, this incarnation and a counter, in the trace of its first cause."""
        self._named += 1
        source, event_id = f"/{cell}/node-executor/{self.name}", f"{cell}/{self._incarnation}/{self._named}"
        trace = continued(self.trace_of(event.causes), event_id) if self._traces is not None else ""
        return msgspec.structs.replace(event, id=event_id, source=source, traceparent=trace)

    def refer(self, event: Event) -> Event:
        """Replace the placeholder NEWEST_USAGE in an event's causes by the last stored usage message."""
        if NEWEST_USAGE not in event.causes:
            return event
        known = (cause if cause != NEWEST_USAGE else self._usage_ref for cause in event.causes)
        return msgspec.structs.replace(event, causes=tuple(cause for cause in known if cause))

    def step(self, now: datetime, *, sample: bool = True) -> list[Event]:
        """Run one cycle; no events before the load is complete. Usage comes first, so that its reference can be a cause."""
        core, machine = self.core, self.machine
        if not core.loaded:
            return []
        if not self._adopted:
            machine.runtime.adopt(core.pods.to_run(), core.runs(), now)
            self._adopted = True
        if core.wanted is not self._measured:
            self._measured = core.wanted
            machine.measure(core.wanted)
        pods = core.pods.to_run()
        if pods is not self._followed:
            self._followed = pods
            machine.runtime.follow(pods)
        seen = machine.observe(now, sample=sample)
        core.observe(seen, machine.runtime.changed())
        if sample and seen.snapshot is not None:
            self._window.add(seen.snapshot, now, seen.slow)
        plan = core.plan(now)
        if plan.groups:
            machine.create(plan.groups)
        report = machine.write(plan.targets)
        core.wrote(report, now)
        self.ordered = plan.orders
        if plan.orders:
            machine.carry_out(plan.orders, now)
        self._must_observe = bool(plan.orders or report.written or report.refused)
        if self._must_observe:
            self.written_values += len(report.written)
            self.refused_values += len(report.refused)
        done = self._executions.of_cycle(core, plan, report, plan.orders, now)
        usage = self._usage(now) if self._window.due(now) or (done and self._early(now, done)) else []
        if plan.reclaims:
            machine.reclaim(plan.reclaims)
        done += self._executions.of_reclaimed(core, machine.reclaimed(), now)
        if self._evicted_by:
            self._evicted_by = {key: ref for key, ref in self._evicted_by.items() if self._is_evicted(key)}
        reports = [self._with_eviction(event) for event in core.decide(now)]
        return [*usage, *reports, *self._condition(now), *done]

    def _usage(self, now: datetime) -> list[Event]:
        self._usage_at = now
        message = self._window.message(self.core.pods.to_run(), now, self.core.wanted)
        return [Event(subject=usage_subject(self.name), data=message, time=now, stream=USAGE)]

    def _early(self, now: datetime, done: Sequence[Event]) -> bool:
        """Whether usage caused a change and the last usage message is old enough to publish another."""
        if not self._window.filled or (self._usage_at is not None and now - self._usage_at < EARLY_REPORT):
            return False
        return any(NEWEST_USAGE in event.causes for event in done)
