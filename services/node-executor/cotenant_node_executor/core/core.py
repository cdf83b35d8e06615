"""The executor's core: which pods must run on this node, the values of its targets, and the status of its pods.

In: the node's subjects on the log (placements, node SLO, the executor's own reports) and an observation of the machine.
Out: orders for the runtime, one composed value for each target, and reports (`run`) as events.

State = last message of each subject below `node.<node>.>`, and the newest observation. A placement of another uid under
the same name replaces the former pod, whose processes are then ended like those of any orphaned pod.

What concerns one pod is in `pod_steps`. A strategy that raises is quarantined by itself: it keeps the values of its last
decision until the node SLO changes; `findings` reports it once. A value of the SLO that cannot be read: see `node_slo`.

Over 300 lines: the only place that knows all parts of the core; each public method says what it returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime

from msgspec.structs import replace

from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.engine.last_sequences import LastSequences
from cotenant.engine.quarantine import Finding
from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant.events.node.runs import ExecutorStatus, RunStatus, is_of_earlier_load, next_boot
from cotenant.events.node.topology import MachineTopology
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.reservations import ReservationShare
from cotenant.model.subjects import slo_subject
from cotenant_node_executor.core.admission import Admission, RunState
from cotenant_node_executor.core.desired_values import DesiredTargets
from cotenant_node_executor.core.evictions import Evictions
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.core.placed import DecodedPlacement, Key, read_placement, sequence_of
from cotenant_node_executor.core.placed_pods import PlacedPods, asked_services, holds_cpus, offers_latency
from cotenant_node_executor.core.plan import EMPTY_PLAN, NO_GROUPS, CyclePlan, endings, missing_groups
from cotenant_node_executor.core.pod_steps import PodSteps
from cotenant_node_executor.core.resizing.resizes import Resizes
from cotenant_node_executor.core.topology_report import TopologyReport
from cotenant_node_executor.runtime.interface import Order
from cotenant_node_executor.sampling.wanted import SamplingOptions, wanted_by
from cotenant_node_executor.strategies.node_slo import NodeSLOReader
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.situation import LocalNode
from cotenant_node_executor.strategies.strategy import RESTORE, Desired, Strategy
from cotenant_node_executor.targets.address import Attribute, Place
from cotenant_node_executor.targets.interface import NodeCapabilities, WriteReport

MAX_PODS = 110
"""Pods on one node, as kubelet's default."""

_BOUND, _GONE = PlacementPhase.BOUND, PlacementPhase.GONE
_NO_PODS: frozenset[str] = frozenset()


class ExecutorCore:
    """`plain_processes`: pods run as processes of this machine, so what these cannot do is refused; `root_pods`: they may run
    as root."""

    def __init__(
        self,
        facts: LocalNode,
        capabilities: NodeCapabilities,
        boot: str,
        *,
        plain_processes: bool,
        root_pods: bool = False,
        strategies: tuple[Strategy, ...] = STRATEGIES,
    ) -> None:
        self.facts = facts
        self.capabilities = capabilities
        self.boot = boot
        self._plain_processes = plain_processes
        self._root_pods = root_pods
        self.strategies = {strategy.name: strategy for strategy in strategies}
        """By name, in order of precedence."""
        self._pressures = [(each.name, each.pressure) for each in strategies if each.pressure is not None]
        self.evictions = Evictions(self.strategies)
        self.pods = PlacedPods()
        """The pods placed on this node."""
        self._steps = PodSteps(facts.name, self.pods, self.evictions, of_kubelet=facts.kubelet_pods)
        self._sequences = LastSequences()
        self._corrected: dict[str, int] = {}
        self.slo: NodeSLORendered | None = None
        self.resources: NodeResources | None = None
        self.resources_ref = ""
        self._admission = Admission()
        self._resizes = Resizes(self.pods, self._steps, self._admission, of_kubelet=facts.kubelet_pods)
        self.topology = TopologyReport(facts.name)
        self.wanted = SamplingOptions()
        """Metrics that the node SLO enables; the same object while it does not change."""
        self.slo_ref = ""
        """The node SLO's event, empty before there is one."""
        self.loaded = False
        """Everything on LOG at the start is folded: the executor's own start marker was delivered, or its log has no
        room for it and was read to the end."""
        self.fed = True
        """False: the reader broke off, and a new core is being loaded. See `ExecutorNode.cut_off`."""
        self.own: ExecutorStatus | None = None
        """The executor's own report as last folded."""
        self.marked = False
        """The start marker was delivered."""
        self.seen: Observation | None = None
        """The newest observation."""
        # The rest is cached for speed only: it is derived from the state above, and recomputed when that changes.
        self._targets = DesiredTargets(facts, capabilities, strategies)
        self._node_slo = NodeSLOReader(strategies)
        self._changed = False
        """An event that may change the decision was folded since the last one."""

    def fresh(self) -> ExecutorCore:
        """Return an empty core for the same node with a new boot id."""
        boot, plain, roots = next_boot(self.boot), self._plain_processes, self._root_pods
        strategies = (*self.strategies.values(),)
        return ExecutorCore(
            self.facts, self.capabilities, boot, plain_processes=plain, root_pods=roots, strategies=strategies
        )

    def take_over(self, former: ExecutorCore) -> None:
        """Go on with another core's strategies and values, and with the evictions that it began."""
        former._targets.problems += self._targets.problems
        self._targets = former._targets
        self.pods.take_place_of(former.pods)
        self.evictions.take_over(former.evictions, self.pods)

    # -- folding -------------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one event."""
        if not self._sequences.is_new(event):
            return
        if self._corrected:
            self._corrected.pop(event.subject, None)
        data = event.data
        if isinstance(data, RunStatus):
            self._changed = self._steps.apply_run(data, event) or self._changed
        elif isinstance(data, Placement):
            self._apply_placement(data, event)
        elif isinstance(data, NodeSLORendered):
            self.slo = None if event.tombstone else self._node_slo.in_force(data, self.slo, self._targets.problems)
            self.slo_ref = event.ref
            self._changed = self.topology.stale = True
            wanted = replace(wanted_by(self.slo), services=self.wanted.services)
            self.wanted = wanted if wanted != self.wanted else self.wanted
        elif isinstance(data, NodeResources):
            self.resources, self.resources_ref = None if event.tombstone else data, event.ref
            self._admission.lend(self.resources)
            self._changed = True
        elif isinstance(data, ReservationShare):
            self._admission.reserve(data, ended=event.tombstone)
            self._changed = True
        elif isinstance(data, ExecutorStatus):
            # The marker is removed with its node. The executor keeps running, and publishes it again at its next start.
            if not event.tombstone:
                if not (self.marked and is_of_earlier_load(data.boot, self.boot)):
                    self.loaded = self.marked = data.boot == self.boot
                self.own = data
                self._admission.allocatable = data.allocatable
            self._changed = True
        elif isinstance(data, MachineTopology):
            self.topology.apply(event, data)

    def _apply_placement(self, data: Placement, event: Event) -> None:
        key = (data.namespace, data.name)
        gone = event.tombstone or data.phase is _GONE
        self._steps.placement_changed(key, event.sequence, bound=not gone and data.phase is _BOUND, gone=gone)
        self._changed = True
        before = self.pods.by_name.get(key)
        if before is not None and (gone or data.uid != before.placement.uid):
            self.evictions.forget(before.placement.uid)
        if gone:
            self.pods.drop(key)
        else:
            of_kubelet = self.facts.kubelet_pods
            placed = read_placement(
                event, data, self.facts.name, self._plain_processes, self._root_pods, of_kubelet=of_kubelet
            )
            self.pods.put(key, placed)
            if placed.names_node and not of_kubelet:
                self._admission.waiting.add(key)
        self._resizes.placed(key, self.pods.by_name.get(key))
        self._ask_services(before, self.pods.by_name.get(key))
        if self.topology.depends_on_pods or holds_cpus(before) or holds_cpus(self.pods.by_name.get(key)):
            self.topology.stale = True

    def _ask_services(self, before: DecodedPlacement | None, now: DecodedPlacement | None) -> None:
        """Set which pods' latency endpoints are polled."""
        if offers_latency(before) or offers_latency(now):
            self.wanted = replace(self.wanted, services=asked_services(self.pods.by_name.values()))

    def last_sequence(self, subject: str) -> int:
        """Return the expected last sequence for a write to this subject; 0 for none. For a subject that ended long ago it is
        no longer known: a write that is refused for it is repeated with LOG's sequence (`correct_sequence`)."""
        corrected = self._corrected.get(subject)
        return corrected if corrected is not None else self._sequences.of(subject)

    def correct_sequence(self, subject: str, sequence: int) -> None:
        """Replace the expected sequence after a refused write: a tombstone has expired, or an acknowledgement was lost.

        Holds until the next message of the subject is folded.
        """
        self._corrected[subject] = sequence

    def observe(self, observation: Observation, changed: Set[str] | None = None) -> None:
        """Take the newest observation of the machine. `changed`: the pods whose states may differ from the last observation;
        None: unknown."""
        before, self.seen = self.seen, observation
        self.topology.observe(observation.machine, observation.snapshot)
        self._steps.observe(before, observation, changed)

    # -- state for the shell ------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a cycle on the same observation may produce a new order or report."""
        return bool(self._changed or self._steps.orders_due or self.evictions.waiting or self._targets.every_cycle)

    @property
    def findings(self) -> Sequence[Finding]:
        """Quarantined pods and strategies that are not published yet."""
        return self._steps.findings

    def take_findings(self) -> list[Finding]:
        """Return the findings, which count as published from now on."""
        found, self._steps.findings = self._steps.findings, []
        return found

    @property
    def holds_reports(self) -> bool:
        """The last decision held a report back: the next cycle, due at once, sees the result of the start."""
        return self._steps.holds_reports

    def keep_orphans(self, keep: bool) -> None:
        """Set whether pods without a placement keep running: another LOG placed them."""
        self._steps.keeps_orphans = keep

    @property
    def placed(self) -> Mapping[Key, DecodedPlacement]:
        """The pods placed on this node, by namespace and name."""
        return self.pods.by_name

    def figures(self, strategy: str) -> dict[str, int]:
        """The numbers behind a strategy's last decision."""
        return self.strategies.get(strategy, RESTORE).figures(self._targets.memory(strategy))

    def desired(self, place: Place, attribute: Attribute) -> Desired | None:
        """The desired value that won a target in the last cycle."""
        return self._targets.desired(place, attribute)

    @property
    def memory_pressure(self) -> str:
        """Why the node shall get no further best-effort pods, by the strategies' last decisions."""
        for name, pressure in self._pressures:
            why = pressure(self._targets.memory(name))
            if why and not self._targets.is_dry(name):
                return why
        return ""

    def orphans(self) -> tuple[str, ...]:
        """The uids of the pods that are on the machine without a placement."""
        return () if self.seen is None else self.pods.unplaced(self.seen.states.keys())

    def runs(self) -> dict[str, RunStatus]:
        """The last reports by pod uid."""
        return self._steps.runs()

    def next_start(self, now: datetime) -> datetime | None:
        """When the next back-off ends, from the last reports; None without a container in back-off."""
        return self._steps.next_start(now)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def plan(self, now: datetime) -> CyclePlan:
        """Return this cycle's orders and file values; empty until the load is complete and the machine was observed."""
        seen = self.seen
        if seen is None or not self.loaded:
            return EMPTY_PLAN
        if self._admission.waiting:
            self._admit(seen)
        self._resizes.judge(seen, now)
        orders: list[Order] = []
        missing: Set[str] = NO_GROUPS
        if self._steps.orders_due:
            orders = self._steps.orders(seen, now) if self.fed else endings(self._steps.orders(seen, now))
            missing = missing_groups(orders, seen.groups) if orders else NO_GROUPS
        targets, ordered = self._targets.of_cycle(
            seen, self.pods.views, self.pods.changed(), missing, self.slo, self.resources, self._leaving()
        )
        if ordered:
            evictions = self.evictions.begin(ordered, self.pods, self.runs(), now, self.resources_ref)
        else:
            evictions = self.evictions.none_ordered(now)
        for key, _, _ in evictions:
            self._touch(key)
        if self._targets.faults:
            self._report_strategies()
        waiting = tuple(sorted(self.evictions.waiting.items())) if ordered else ()
        problems, reclaims = tuple(self._targets.problems), tuple(self._targets.reclaims)
        self._targets.problems.clear()
        self._targets.reclaims.clear()
        groups = tuple(sorted(missing)) if missing else ()
        return CyclePlan(tuple(orders), groups, targets, evictions, waiting, problems, reclaims, self._targets.dry_runs)

    def wrote(self, report: WriteReport, now: datetime) -> None:
        """Take over the last plan's writes."""
        self._resizes.wrote(report, now)

    def _leaving(self) -> frozenset[str]:
        """The pods that are being evicted here, and those that the placement ends."""
        if not self.evictions.uids and not self.pods.terminating:
            return _NO_PODS
        return self.evictions.uids | self.pods.terminating

    def _admit(self, seen: Observation) -> None:
        """Refuse the pods that name this node and do not fit."""

        def run_of(key: Key, uid: str) -> RunState:
            return self._steps.run_state(key, uid, seen)

        for key, found in self._admission.refusals(self.pods.by_name, run_of):
            self.pods.refuse(key, found.reason, found.message)
            self._touch(key)

    def _touch(self, key: Key) -> None:
        self._steps.touch(key)
        self._changed = True

    def _report_strategies(self) -> None:
        """Report the strategies that raised; the finding names the node SLO as its cause."""
        faults, self._targets.faults = self._targets.faults, []
        slo = self.slo or NodeSLORendered(node=self.facts.name)
        about = Event(subject=slo_subject(self.facts.name), data=slo, sequence=sequence_of(self.slo_ref))
        self._steps.findings += [Finding(about, f"strategy {name}: {type(error).__name__}: {error}") for name, error in faults]

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return reports that are not on the log yet: of the machine, of pods by namespace and name, then tombstones for pods
        that are gone."""
        seen = self.seen
        self._steps.holds_reports = False
        if seen is None or not self.loaded or not self.fed:
            return ()
        self._changed = False
        topology = self.topology.decide(self.pods.views.values(), self.slo, now)
        if self._admission.waiting:
            self._admit(seen)
        reports = self._steps.reports(seen, now)[: MAX_EVENTS_PER_DECISION - 1] if self._steps.open else []
        return reports if topology is None else [topology, *reports]
