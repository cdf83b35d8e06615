"""The metrics-ingest service's core: computes NodeMetrics from usage samples.

Folds `usage.<node>` (stream USAGE), Node objects, executors' reports and placements, the colocation strategy in
`node.<node>.resources`, and its own `metrics.<node>` and `predictions.<node>`. Decides, per node with an object: a
NodeMetricComputed when samples were accepted (or refused) since the last one and the report interval has passed; at once at
a node's first samples or the first ones after silence; and one with `unknown_since` when no sample came for the silent time
(see `silent_after`), which includes nodes that never sent one. When a node's object is deleted, its metrics end.

Time: windows are aligned to the node's clock, which is checked against the log's; staleness depends on the log's time alone.
The core takes the log's time from its own events and from the last decision. The service measures and is not recomputed, so
the first decision may end the load: until then samples are queued, as a node's digest and its newer samples arrive in any
order.

A node is evaluated again only after one of its events was folded, or when time changes its result.

Prediction: the models of a node are trained when a message ends a minute of its clock (`prediction`), and stored on
`predictions.<node>` for a restart, one node after the other.

Bounds: one NodeState per node (see `node_state`); MAX_EARLY queued messages during the load; samples of nodes without an object
are counted and dropped.

Over 300 lines: what is folded and what follows from it share the nodes.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from cotenant.engine.agenda import Agenda
from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.node.usage import UsageSample
from cotenant.events.objects import ObjectStored
from cotenant.log.contract import USAGE, ending
from cotenant.model.subjects import PREDICTIONS, metrics_subject, predictions_subject, tokens
from cotenant.model.times import NEVER
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.counted_memory import counted
from cotenant_metrics_ingest.node_report import DueReport, reports_of
from cotenant_metrics_ingest.node_state import NO_STRATEGY, ExecutorView, NodeState, Published, StrategyView
from cotenant_metrics_ingest.node_windows import MALFORMED, REPEATED, NodeWindows, WindowSizes
from cotenant_metrics_ingest.policy import MemoryPolicy, PolicyInForce, policy_in_force
from cotenant_metrics_ingest.prediction.checkpoints import MAX_AT_ONCE, due_checkpoints

CORE_VERSION = "2"
FILTERS = (
    "objects.core.nodes.>",
    "metrics.*",
    "predictions.*",
    "node.*.resources",
    "node.*.executor",
    "node.*.placement.>",
)
USAGE_FILTERS = ("usage.*",)

MAX_EARLY = 100_000
LOOK_EVERY = timedelta(milliseconds=500)
"""How often nodes are evaluated; urgent ones are evaluated in between."""
SHORTEST_SILENCE = timedelta(seconds=10)
NO_NODE = "NoNodeObject"
EARLY_FULL = "TooManyWhileLoading"


_sizes = lru_cache(maxsize=256)(WindowSizes.of)


class MetricsIngestCore:
    """The mutable core; see the module."""

    def __init__(self, config: MetricsConfig | None = None) -> None:
        self.config = config or MetricsConfig()
        self._own_policy = PolicyInForce(
            self.config.report_interval_seconds,
            self.config.aggregate_duration_seconds,
            tuple(self.config.durations_seconds),
            MemoryPolicy.WITHOUT_PAGE_CACHE,
        )
        self.refusals: dict[str, int] = {}
        """Messages refused since the start, by reason."""
        self._sequences = LastSequences()
        self._nodes: dict[str, NodeState] = {}
        self._early: list[Event] | None = []
        self._log_time: datetime | None = None
        self._listening_since: datetime | None = None
        self._urgent: set[str] = set()
        self._agenda = Agenda()
        """Nodes with an event folded or stored since they last had nothing to report."""
        self._next_look: datetime | None = None

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one event."""
        data = event.data
        if isinstance(data, UsageSample) and event.stream == USAGE:
            if self._early is None:
                self._take(event, data)
            elif len(self._early) < MAX_EARLY:
                self._early.append(event)
            else:
                self._count(EARLY_FULL)
            return
        if not self._sequences.is_new(event):
            return
        parts = tokens(event.subject)
        match parts:
            case ("metrics", name):
                self._own(event, name)
            case ("objects", "core", "nodes", _, name):
                self._node_object(event, name)
            case ("node", name, "placement", namespace, pod):
                self._node_of(name).place(event, namespace, pod)
                self._forget(name)
            case ("node", name, "executor"):
                found = data if isinstance(data, (ExecutorStatus, ExecutorView)) and not event.tombstone else None
                self._node_of(name).report_amounts(found)
                self._forget(name)
            case ("node", name, "resources"):
                self._resources(event, name)
            case ("predictions", name):
                self._stored_models(event, name)

    def _node_of(self, name: str) -> NodeState:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeState()
        return node

    def _resources(self, event: Event, name: str) -> None:
        node = self._node_of(name)
        given = event.data if isinstance(event.data, NodeResources | StrategyView) and not event.tombstone else None
        node.strategy = given.strategy if given is not None else NO_STRATEGY
        node.configure()
        self._agenda.mark(name)
        self._forget(name)

    def _stored_models(self, event: Event, name: str) -> None:
        node = self._node_of(name)
        if event.tombstone or not isinstance(event.data, PredictionState):
            node.stored = node.stored_at = None
            node.stored_ms = 0
        else:
            node.stored_at, node.stored_ms = event.time, event.data.trained_ms
            if self._early is not None:
                node.stored = (event.ref, event.data)
        self._forget(name)

    def _own(self, event: Event, name: str) -> None:
        node = self._node_of(name)
        self._agenda.mark(name)
        if event.time is not None and (self._log_time is None or event.time > self._log_time):
            self._log_time = event.time
        if event.tombstone or not isinstance(event.data, NodeMetricComputed):
            node.published = node.published_at = node.to_restore = None
            self._urgent.discard(name)
            self._forget(name)
            return
        metric = event.data
        node.published, node.published_at = Published.of(metric), event.time
        if self._early is not None:
            node.to_restore = metric
            node.refused, node.refused_reason = metric.refused_samples, metric.refused_reason
            node.heard = metric.update_time
        elif metric.unknown_since is None and (
            node.windows is None or metric.digest is None or metric.digest.last_ms >= node.windows.last_ms
        ):
            node.news = node.refused != metric.refused_samples
            node.causes.clear()
            if node.contention is not None:
                node.contention.clear()
            self._urgent.discard(name)

    def _node_object(self, event: Event, name: str) -> None:
        node = self._node_of(name)
        self._agenda.mark(name)
        if event.tombstone or not isinstance(event.data, ObjectStored):
            node.undeclare()
            self._urgent.add(name)
            self._forget(name)
        else:
            node.declared = event.sequence
            node.declared_at = node.declared_at or event.time
            node.declare(event.data)

    def _forget(self, name: str) -> None:
        node = self._nodes[name]
        if node.forgotten:
            del self._nodes[name]
            self._urgent.discard(name)
            self._agenda.drop(name)

    def _take(self, event: Event, sample: UsageSample) -> None:
        node = self._nodes.get(sample.node)
        if node is None or not node.declared:
            self._count(NO_NODE)
            return
        if not node.news or not self._agenda.waits(sample.node):
            # Otherwise it is evaluated when its report is due; further samples do not make the report due earlier.
            self._agenda.mark(sample.node)
        if event.time is None or tokens(event.subject)[-1] != sample.node:
            self._refuse(node, MALFORMED, f"{event.ref} has no time, or is not on its node's subject")
            return
        policy = self._policy(node)
        windows = node.windows = self._windows(node, policy)
        log_ms = int(self._log_time.timestamp() * 1000) if self._log_time is not None else 0
        end_ms = int(event.time.timestamp() * 1000)
        first = windows.first_new(sample, end_ms)
        refused = windows.take(counted(sample, policy.memory), end_ms, log_ms)
        if refused is None:
            node.accepted(event, self._log_time)
            node.predict_from(sample, first)
            published = node.published
            if published is None or not published.measured or published.unknown_since is not None:
                self._urgent.add(sample.node)
                self._agenda.mark(sample.node)
        elif refused.reason != REPEATED:
            self._refuse(node, refused.reason, f"{event.ref}: {refused.message}")

    def _policy(self, node: NodeState) -> PolicyInForce:
        if node.in_force is None:
            node.in_force = policy_in_force(node.policy, self._own_policy)
        return node.in_force

    @staticmethod
    def _windows(node: NodeState, policy: PolicyInForce) -> NodeWindows:
        """The node's windows in the sizes of its policy; those of others start over (`NodeWindows.resized`)."""
        sizes = _sizes(policy.aggregate_seconds, policy.durations_seconds)
        windows = node.windows
        if windows is None:
            return NodeWindows(sizes)
        return windows if windows.sizes is sizes else windows.resized(sizes)

    def _refuse(self, node: NodeState, reason: str, message: str) -> None:
        self._count(reason)
        node.refused += 1
        node.refused_reason = f"{reason}: {message}"
        node.news = True

    def _count(self, reason: str) -> None:
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    # -- deciding ------------------------------------------------------------------------------------------------

    def decide(self, now: datetime) -> Sequence[Event]:
        """Reports that are due, by node name."""
        self._end_load(now)
        looks = self._next_look is None or now >= self._next_look
        found: list[Event | DueReport] = []
        for name in self._agenda.due(now) if looks else sorted(self._urgent):
            node = self._nodes[name]
            one = self._decide_node(name, node, now)
            if one is not None:
                found.append(one)
                if len(found) == MAX_EVENTS_PER_DECISION:
                    return self._reported(found)
            elif looks:
                self._agenda.settle(name, self._next_look_at(node))
        if looks:
            self._next_look = now + LOOK_EVERY
        return [*self._reported(found), *self._stored(found, now, MAX_EVENTS_PER_DECISION - len(found))]

    def _stored(self, found: Sequence[Event | DueReport], now: datetime, room: int) -> Sequence[Event]:
        """The models of nodes that are reported and whose turn it is, at most so many; HISTORY does not take them over, so they
        are the last of a decision."""
        interval = self.config.prediction_checkpoint_seconds
        reported = [one.node for one in found if isinstance(one, DueReport)]
        ages = {
            name: age
            for name in reported
            if (age := self._nodes[name].seconds_since_stored(name, now, interval)) is not None
        }
        due = due_checkpoints(ages, interval, min(room, MAX_AT_ONCE))
        return [self._models(name, self._nodes[name], now) for name in due]

    @staticmethod
    def _models(name: str, node: NodeState, now: datetime) -> Event:
        assert node.prediction is not None
        state = node.prediction.state(name, now)
        return Event(subject=predictions_subject(name), data=state, causes=(f"LOG:{node.declared}",), replaces=True)

    def _next_look_at(self, node: NodeState) -> datetime:
        """Return when a node without a due report may have one by the passing of time."""
        if not node.declared:
            return NEVER
        times = [NEVER]
        if node.news and node.published_at is not None:
            times.append(node.published_at + self._interval(node))
        since = node.last_sign()
        if since is not None and (node.published is None or node.published.unknown_since is None):
            times.append(max(since, self._listening_since or since) + self.silent_after(node))
        return min(times)

    def _reported(self, found: Sequence[Event | DueReport]) -> Sequence[Event]:
        """Return the events; all due reports are built together."""
        wanted = [one for one in found if isinstance(one, DueReport)]
        reports = iter(reports_of(wanted))
        events = [
            self._event(one.node, self._nodes[one.node], next(reports)) if isinstance(one, DueReport) else one for one in found
        ]
        return sorted(events, key=lambda event: event.subject.startswith(PREDICTIONS))

    def _end_load(self, now: datetime) -> None:
        self._log_time = max(self._log_time or now, now)
        self._listening_since = self._listening_since or now
        early, self._early = self._early, None
        for node in self._nodes.values() if early is not None else ():
            self._restore(node)
        for event in sorted(early or (), key=lambda event: event.sequence):
            assert isinstance(event.data, UsageSample)
            self._take(event, event.data)

    def _restore(self, node: NodeState) -> None:
        """Restore windows and models at the end of the load, when all that they depend on is folded."""
        metric, stored = node.to_restore, node.stored
        node.to_restore = node.stored = None
        if not node.declared or metric is None:
            return
        policy = self._policy(node)
        node.windows = NodeWindows.restored(metric, _sizes(policy.aggregate_seconds, policy.durations_seconds))
        node.restore_models(stored)

    def _decide_node(self, name: str, node: NodeState, now: datetime) -> Event | DueReport | None:
        if not node.declared:
            return self._ended(name, node)
        published, windows = node.published, node.windows
        unknown = published is not None and published.unknown_since is not None
        if node.news and windows is not None and windows.last_ms:
            heard = node.heard or now
            again = unknown and (published is None or published.update_time is None or heard > published.update_time)
            if published is None or not published.measured or again or self._interval_passed(node, now):
                return DueReport(
                    node=name,
                    windows=windows,
                    update_time=heard,
                    refused_samples=node.refused,
                    refused_reason=node.refused_reason,
                    policy=self._policy(node),
                    forecast=node.forecast(now, self.config),
                    contention=node.contention.averages() if node.contention is not None else {},
                )
        since = node.last_sign()
        if unknown or since is None:
            return None
        # Silence counts only while this service was running, as it receives nothing during its own downtime.
        if now - max(since, self._listening_since or now) < self.silent_after(node):
            return None
        last = published.metric() if published is not None else self._never_heard(name, node)
        metric = msgspec.structs.replace(
            last, unknown_since=since, refused_samples=node.refused, refused_reason=node.refused_reason
        )
        return self._event(name, node, metric)

    def _never_heard(self, name: str, node: NodeState) -> NodeMetricComputed:
        policy = self._policy(node)
        return NodeMetricComputed(
            node=name,
            report_interval_seconds=max(1, round(policy.report_interval_seconds)),
            aggregate_duration_seconds=policy.aggregate_seconds,
            durations_seconds=policy.durations_seconds,
            memory_collect_policy=policy.memory.value,
        )

    def _interval(self, node: NodeState) -> timedelta:
        return timedelta(seconds=self._policy(node).report_interval_seconds)

    def _interval_passed(self, node: NodeState, now: datetime) -> bool:
        return node.published_at is None or now - node.published_at >= self._interval(node)

    def silent_after(self, node: NodeState) -> timedelta:
        """How long a node may send no samples before its state is unknown."""
        if self.config.silent_after_seconds:
            return timedelta(seconds=self.config.silent_after_seconds)
        span = timedelta(milliseconds=node.windows.period_ms if node.windows is not None else 0)
        return max(3 * self._interval(node), 3 * span, SHORTEST_SILENCE)

    @staticmethod
    def _ended(name: str, node: NodeState) -> Event | None:
        if node.published is None:
            return ending(predictions_subject(name), PredictionState(node=name)) if node.stored_at is not None else None
        last = msgspec.structs.replace(node.published.metric(), digest=None)
        return ending(metrics_subject(name), last)

    @staticmethod
    def _event(name: str, node: NodeState, metric: NodeMetricComputed) -> Event:
        causes = tuple(f"USAGE:{sequence}" for sequence in node.causes)
        return Event(subject=metrics_subject(name), data=metric, causes=(*causes, f"LOG:{node.declared}"))
