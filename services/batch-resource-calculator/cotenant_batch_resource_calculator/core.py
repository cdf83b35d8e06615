"""batch-resource-calculator: decides how much of each node batch pods may use, and renders its NodeSLO.

Folds node objects, executors' reports and machines, metrics, placements and runs, YARN's usage, NUMA topologies, devices and
the ConfigMap slo-controller-config. Decides `node.<node>.resources`, `node.<node>.slo` and the ConfigMap's rejected sections.

When an event is published again:

    resources  a code changed (reason, policies, strategy in force, withdrawn or not, history of a risk budget), or a figure
               moved by more than `resourceDiffThreshold` of its last published value, or anything changed and the last event is
               older than `updateTimeThresholdSeconds`
    slo        any part of it changed

The events hold the state that later decisions need: the figures that the dead band compares with, the configuration that
stays in force after a rejected ConfigMap, the foreign share that an unreadable annotation keeps. Nodes are decided in the
order of their names; a node whose object is deleted gets tombstones on both subjects.

Over 300 lines: one fold for each kind of fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.engine.agenda import Agenda
from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant.events.node.runs import ExecutorStatus, RunStatus
from cotenant.events.node.topology import MachineTopology
from cotenant.events.node.yarn import YarnNode
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.log.contract import ending
from cotenant.model.names import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from cotenant.model.subjects import object_subject, resources_subject, slo_subject, tokens
from cotenant_batch_resource_calculator.config import rejections
from cotenant_batch_resource_calculator.config.in_force import Configuration, load_configuration
from cotenant_batch_resource_calculator.counts import Counts
from cotenant_batch_resource_calculator.deciding import is_due_now, next_look, resources_of
from cotenant_batch_resource_calculator.formulas.devices import DeviceTotals
from cotenant_batch_resource_calculator.metric_view import ReadMetric
from cotenant_batch_resource_calculator.node_state import NodeState
from cotenant_batch_resource_calculator.placed_pods import PlacedPod
from cotenant_batch_resource_calculator.reading import read_configuration, read_devices, read_node
from cotenant_batch_resource_calculator.rendering import Renderer
from cotenant_batch_resource_calculator.risk import RiskPools
from cotenant_batch_resource_calculator.topology import DeclaredTopology, declared_topology

FILTERS = (
    "objects.core.nodes._.*",
    object_subject("", "configmaps", SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME),
    "objects.topology%2Enode%2Ek8s%2Eio.noderesourcetopologies._.*",
    "objects.scheduling%2Ekoordinator%2Esh.devices._.*",
    "metrics.*",
    "node.*.executor",
    "node.*.topology",
    "node.*.placement.*.*",
    "node.*.run.*.*",
    "node.*.resources",
    "node.*.slo",
    rejections.SUBJECT,
    "yarn.*",
)
CORE_VERSION = "6"

_GONE = PlacementPhase.GONE


class CalculatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The service has no settings of its own: its configuration is the ConfigMap, which is on the log."""


class BatchResourceCalculator:
    """The core. State: one NodeState per node, and the configuration of the ConfigMap's last version."""

    def __init__(self, config: CalculatorConfig | None = None) -> None:
        self.config = config or CalculatorConfig()
        self._nodes: dict[str, NodeState] = {}
        self._configuration: Configuration = load_configuration(None)
        self._renderer = Renderer(self._configuration)
        self._rejection: Event | None = None
        self.pools = RiskPools()
        self._sequences = LastSequences()
        self.counts = Counts()
        self._agenda = Agenda()
        """Nodes that may need an event."""
        self._assumed: list[tuple[Event, Event | None]] = []
        """Own events that are being stored, each with the one that it replaces."""

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one event. A message older than the last folded one of its subject changes nothing."""
        if not self._sequences.is_new(event):
            return
        data = event.data
        if type(data) is RunStatus:
            self._apply_run(event, data)
        elif type(data) is Placement:
            self._apply_placement(event, data)
        else:
            self.counts.stored(event)
            self._apply_fact(event)
        if event.tombstone:
            self._prune(event)

    def _apply_fact(self, event: Event) -> None:
        parts = tokens(event.subject)
        if parts[0] == "node":
            self._apply_node(event, parts[1], parts[2:])
        elif parts[0] == "objects":
            self._apply_object(event, parts[1:3], parts[4])
        elif parts[0] == "metrics":
            self._apply_metric(event, parts[1])
        elif parts[0] == "yarn":
            self._apply_yarn(event, parts[1])
        elif event.subject == rejections.SUBJECT:
            self._rejection = None if event.tombstone else event

    def _prune(self, event: Event) -> None:
        parts = tokens(event.subject)
        name = parts[4] if parts[0] == "objects" else parts[1]
        if name in self._nodes and self._nodes[name].empty:
            del self._nodes[name]
            self._agenda.drop(name)

    def _state(self, name: str) -> NodeState:
        state = self._nodes.get(name)
        if state is None:
            state = self._nodes[name] = NodeState(name)
        return state

    def _changing(self, name: str) -> NodeState:
        """Return the state of a node and mark it as changed."""
        state = self._state(name)
        state.changed()
        self._agenda.mark(name)
        return state

    def _apply_object(self, event: Event, kind: Sequence[str], name: str) -> None:
        stored = event.data if isinstance(event.data, ObjectStored) and not event.tombstone else None
        if kind == ("core", "configmaps"):
            self._configuration = read_configuration(event, stored)
            self._renderer = Renderer(self._configuration)
            self.counts.configured(self._configuration)
            for state in self._nodes.values():
                state.configuration_changed()
                state.rendered = None
            self._agenda.mark_all(self._nodes)
            return
        state = self._changing(name)
        if kind == ("core", "nodes"):
            state.node, state.unreadable = read_node(stored, name)
            state.node_ref = event.ref if stored is not None else ""
            state.rendered = None
        elif kind == ("topology.node.k8s.io", "noderesourcetopologies"):
            state.declared = declared_topology(stored.object) if stored is not None else DeclaredTopology()
            state.declared_ref = event.ref if stored is not None else ""
        elif kind == ("scheduling.koordinator.sh", "devices"):
            state.devices = read_devices(stored) if stored is not None else DeviceTotals()
            state.devices_ref = event.ref if stored is not None else ""

    def _apply_metric(self, event: Event, name: str) -> None:
        state = self._state(name)
        state.metric_changed()
        self._agenda.mark(name)
        metric = event.data if isinstance(event.data, ReadMetric) and not event.tombstone else None
        state.metric = metric
        state.metric_ref = event.ref if metric is not None else ""

    def _apply_yarn(self, event: Event, node: str) -> None:
        data = event.data if isinstance(event.data, YarnNode) and not event.tombstone else None
        if data is not None and data.node != node:
            # A NodeManager that belongs to no node, or no longer to this one.
            if (known := self._nodes.get(node)) is None or known.yarn is None:
                return
            data = None
        state = self._changing(node)
        state.yarn = data
        state.yarn_ref = event.ref if data is not None else ""

    def _apply_node(self, event: Event, name: str, rest: tuple[str, ...]) -> None:
        data = None if event.tombstone else event.data
        if rest == ("resources",):
            last = published.risk if (published := self._state(name).published) is not None else None
            self.pools.replace(last, data.risk if isinstance(data, NodeResources) else None)
        if rest == ("resources",) and isinstance(data, NodeResources):
            state = self._state(name)
            if state.published_as_decided(data):
                state.resources = event
                if state.settled:
                    self._agenda.settle(name, next_look(state))
                else:
                    self._agenda.mark(name)
                return
        if rest == ("slo",):
            self._state(name).slo_published(event if isinstance(data, NodeSLORendered) else None)
            self._agenda.mark(name)
            return
        state = self._changing(name)
        match rest:
            case ("executor",):
                state.executor = data if isinstance(data, ExecutorStatus) else None
                state.executor_ref = event.ref if state.executor is not None else ""
                state.rendered = None
            case ("topology",):
                state.machine = data if isinstance(data, MachineTopology) else None
                state.machine_ref = event.ref if state.machine is not None else ""
            case ("resources",):
                state.resources = event if isinstance(data, NodeResources) else None

    def _apply_placement(self, event: Event, placed: Placement) -> None:
        state, key = self._state(placed.node), f"{placed.namespace}/{placed.name}"
        if event.tombstone or placed.phase is _GONE:
            state.placed.pop(key, None)
        else:
            state.placed[key] = PlacedPod(placed.uid, event.sequence, placed)
        self._apply_pods(state)

    def _apply_run(self, event: Event, run: RunStatus) -> None:
        """Fold the end of a pod; other runs do not matter."""
        ended = run.uid if run.phase.terminal and not event.tombstone else None
        state = self._nodes.get(run.node)
        if ended is None and (state is None or not state.ended):
            return
        state, key = self._state(run.node), f"{run.namespace}/{run.name}"
        if state.ended.get(key) == ended:
            return
        if ended is not None:
            state.ended[key] = ended
        else:
            del state.ended[key]
        self._apply_pods(state)

    def _apply_pods(self, state: NodeState) -> None:
        """Mark a node whose pods changed, if it offers batch resources."""
        if state.pods_changed():
            self._agenda.mark(state.name)

    # -- own events that are being stored ------------------------------------------------------------------------

    def assume(self, events: Sequence[Event]) -> None:
        """Fold own events as if they were stored. No decision names the sequence of an own event."""
        self._assumed = [(event, self._own(event.subject)) for event in events]
        for event in events:
            self._fold_own(event)

    def confirm(self, first: int) -> None:
        """They are stored, from sequence `first` on."""
        assumed, self._assumed = self._assumed, []
        for sequence, (event, _) in enumerate(assumed, first):
            self.apply(msgspec.structs.replace(event, sequence=sequence))

    def withdraw(self) -> None:
        """They are not stored: fold what they replaced."""
        assumed, self._assumed = self._assumed, []
        for event, before in assumed:
            if (state := self._nodes.get(tokens(event.subject)[1])) is not None:
                state.changed()
            self._fold_own(before or msgspec.structs.replace(event, tombstone=True))

    def _own(self, subject: str) -> Event | None:
        """Return the last own event of a subject."""
        if subject == rejections.SUBJECT:
            return self._rejection
        _, name, what = tokens(subject)
        state = self._nodes.get(name)
        return None if state is None else state.resources if what == "resources" else state.slo

    def _fold_own(self, event: Event) -> None:
        self._apply_fact(event)
        if event.tombstone:
            self._prune(event)

    # -- deciding ------------------------------------------------------------------------------------------------

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return the events that are due: of the ConfigMap, then by node name."""
        events = rejections.due(self._configuration, self._rejection)
        for name in self._agenda.due(now):
            if len(events) > MAX_EVENTS_PER_DECISION - 2:
                break
            state = self._nodes[name]
            decided = self._end(state) if state.node is None else self._decide_node(state, now)
            events.extend(decided)
            if not decided:
                self._agenda.settle(name, next_look(state))
        return events

    # -- what-if ------------------------------------------------------------------------------------------------

    def nodes(self) -> list[str]:
        """Return the names of the nodes that have an object, sorted."""
        return sorted(name for name, state in self._nodes.items() if state.node is not None)

    def node(self, name: str) -> NodeState | None:
        """Return the state of a node that has an object; only the core changes it."""
        state = self._nodes.get(name)
        return state if state is not None and state.node is not None else None

    def wanted(self, state: NodeState, now: datetime) -> tuple[NodeResources, NodeSLORendered]:
        """Return the events of a node that the configuration in force asks for."""
        return resources_of(state, self._configuration, self.pools, now).payload, self._rendered(state)

    def published(self) -> list[NodeResources]:
        """Return the last resources event of each node."""
        return [resources for state in list(self._nodes.values()) if (resources := state.published) is not None]

    def _end(self, state: NodeState) -> list[Event]:
        return [ending(own.subject, own.data, own.causes) for own in (state.resources, state.slo) if own is not None]

    def _decide_node(self, state: NodeState, now: datetime) -> list[Event]:
        events: list[Event] = []
        standing = resources_of(state, self._configuration, self.pools, now)
        if is_due_now(state.resources, standing, now):
            causes = self._causes(state, standing.payload)
            events.append(Event(subject=resources_subject(state.name), data=standing.payload, causes=causes))
        slo, last = self._rendered(state), state.published_slo
        if state.settled_slo is slo:
            return events
        if last is None or msgspec.structs.replace(last, config=slo.config) != slo:
            causes = tuple(ref for ref in (self._configuration.source, state.node_ref) if ref)
            events.append(Event(subject=slo_subject(state.name), data=slo, causes=causes))
        else:
            state.settled_slo = slo
        return events

    def _rendered(self, state: NodeState) -> NodeSLORendered:
        if state.rendered is None:
            state.rendered = self._renderer.render(
                state.name, state.labels, state.annotations, state.reservation(), state.published_slo
            )
        return state.rendered

    def _causes(self, state: NodeState, payload: NodeResources) -> tuple[str, ...]:
        """The causes: first the metric, which changes the figures most often, then the other inputs."""
        refs = [state.metric_ref, state.yarn_ref, state.executor_ref, state.node_ref, payload.config]
        refs += [state.declared_ref, state.machine_ref, state.devices_ref]
        refs += [placed.ref for key in payload.assumed if (placed := state.placed.get(key)) is not None]
        return tuple(dict.fromkeys(ref for ref in refs if ref))
