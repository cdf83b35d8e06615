"""The metrics-ingest service's core: computes NodeMetrics from usage samples.

Folds `usage.<node>` (stream USAGE), Node objects, and its own `metrics.<node>`. Decides, per node with an object: a
NodeMetricComputed when samples were accepted (or refused) since the last one and the report interval has passed; at once at
a node's first samples or the first ones after silence; and one with `unknown_since` when no sample came for the silent time
(see `silent_after`), which includes nodes that never sent one. When a node's object is deleted, its metrics end.

Time: windows are aligned to the node's clock, which is checked against the log's; staleness depends on the log's time alone.
The core takes the log's time from its own events and from the last decision. The service measures and is not recomputed, so
the first decision may end the load: until then samples are queued, as a node's digest and its newer samples arrive in any
order.

A node is evaluated again only after one of its events was folded, or when time changes its result.

Bounds: one NodeWindows per declared node (see `slots` and `means`: about 100 KiB with 30 pods); MAX_EARLY queued
messages during the load; samples of nodes without an object are counted and dropped.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.engine.agenda import Agenda
from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.events.metrics import NodeMetricComputed
from cotenant.events.objects import ObjectStored
from cotenant.events.usage import UsageSample
from cotenant.log.contract import USAGE, ending
from cotenant.model.subjects import metrics_subject, tokens
from cotenant.model.times import NEVER
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.node_report import DueReport, reports_of
from cotenant_metrics_ingest.node_state import NodeState
from cotenant_metrics_ingest.node_windows import MALFORMED, REPEATED, NodeWindows, WindowSizes

CORE_VERSION = "1"
FILTERS = ("objects.core.nodes.>", "metrics.*")
USAGE_FILTERS = ("usage.*",)

MAX_EARLY = 100_000
LOOK_EVERY = timedelta(milliseconds=500)
"""How often nodes are evaluated; urgent ones are evaluated in between."""
SHORTEST_SILENCE = timedelta(seconds=10)
NO_NODE = "NoNodeObject"
EARLY_FULL = "TooManyWhileLoading"


class MetricsIngestCore:
    """The mutable core; see the module."""

    def __init__(self, config: MetricsConfig | None = None) -> None:
        self.config = config or MetricsConfig()
        self.sizes = WindowSizes.of(self.config.aggregate_duration_seconds, self.config.durations_seconds)
        self._report_interval = timedelta(seconds=self.config.report_interval_seconds)
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
        if parts[0] == "metrics" and len(parts) == 2:
            self._own(event, parts[1])
        elif parts[:3] == ("objects", "core", "nodes") and len(parts) == 5:
            self._node_object(event, parts[4])

    def _own(self, event: Event, name: str) -> None:
        node = self._nodes.setdefault(name, NodeState())
        self._agenda.mark(name)
        if event.time is not None and (self._log_time is None or event.time > self._log_time):
            self._log_time = event.time
        if event.tombstone or not isinstance(event.data, NodeMetricComputed):
            node.published = node.published_at = None
            self._urgent.discard(name)
            self._forget(name)
            return
        metric = event.data
        node.published, node.published_at = metric, event.time
        if self._early is not None:
            node.windows = NodeWindows.restored(metric, self.sizes)
            node.refused, node.refused_reason = metric.refused_samples, metric.refused_reason
            node.heard = metric.update_time
        elif metric.unknown_since is None and (
            node.windows is None or metric.digest is None or metric.digest.last_ms >= node.windows.last_ms
        ):
            node.news = node.refused != metric.refused_samples
            node.causes.clear()
            self._urgent.discard(name)

    def _node_object(self, event: Event, name: str) -> None:
        node = self._nodes.setdefault(name, NodeState())
        self._agenda.mark(name)
        if event.tombstone or not isinstance(event.data, ObjectStored):
            node.declared, node.declared_at, node.windows, node.heard = 0, None, None, None
            self._urgent.add(name)
            self._forget(name)
        else:
            node.declared = event.sequence
            node.declared_at = node.declared_at or event.time

    def _forget(self, name: str) -> None:
        node = self._nodes[name]
        if not node.declared and node.published is None:
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
        if node.windows is None:
            node.windows = NodeWindows(self.sizes)
        log_ms = int(self._log_time.timestamp() * 1000) if self._log_time is not None else 0
        refused = node.windows.take(sample, int(event.time.timestamp() * 1000), log_ms)
        if refused is None:
            node.accepted(event, self._log_time)
            published = node.published
            if published is None or published.digest is None or published.unknown_since is not None:
                self._urgent.add(sample.node)
                self._agenda.mark(sample.node)
        elif refused.reason != REPEATED:
            self._refuse(node, refused.reason, f"{event.ref}: {refused.message}")

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
        return self._reported(found)

    def _next_look_at(self, node: NodeState) -> datetime:
        """Return when a node without a due report may have one by the passing of time."""
        if not node.declared:
            return NEVER
        times = [NEVER]
        if node.news and node.published_at is not None:
            times.append(node.published_at + self._report_interval)
        since = node.last_sign()
        if since is not None and (node.published is None or node.published.unknown_since is None):
            times.append(max(since, self._listening_since or since) + self.silent_after(node.windows))
        return min(times)

    def _reported(self, found: Sequence[Event | DueReport]) -> Sequence[Event]:
        """Return the events; all due reports are built together."""
        wanted = [one for one in found if isinstance(one, DueReport)]
        reports = iter(reports_of(wanted, self._interval))
        return [
            self._event(one.node, self._nodes[one.node], next(reports)) if isinstance(one, DueReport) else one for one in found
        ]

    def _end_load(self, now: datetime) -> None:
        self._log_time = max(self._log_time or now, now)
        self._listening_since = self._listening_since or now
        early, self._early = self._early, None
        for event in sorted(early or (), key=lambda event: event.sequence):
            assert isinstance(event.data, UsageSample)
            self._take(event, event.data)

    def _decide_node(self, name: str, node: NodeState, now: datetime) -> Event | DueReport | None:
        if not node.declared:
            return self._ended(name, node)
        published, windows = node.published, node.windows
        unknown = published is not None and published.unknown_since is not None
        if node.news and windows is not None and windows.last_ms:
            heard = node.heard or now
            again = unknown and (published is None or published.update_time is None or heard > published.update_time)
            if published is None or published.digest is None or again or self._interval_passed(node, now):
                return DueReport(
                    node=name,
                    windows=windows,
                    update_time=heard,
                    refused_samples=node.refused,
                    refused_reason=node.refused_reason,
                )
        since = node.last_sign()
        if unknown or since is None:
            return None
        # Silence counts only while this service was running, as it receives nothing during its own downtime.
        if now - max(since, self._listening_since or now) < self.silent_after(windows):
            return None
        last = published or NodeMetricComputed(node=name, report_interval_seconds=self._interval)
        metric = msgspec.structs.replace(
            last, unknown_since=since, refused_samples=node.refused, refused_reason=node.refused_reason
        )
        return self._event(name, node, metric)

    @property
    def _interval(self) -> int:
        return max(1, round(self.config.report_interval_seconds))

    def _interval_passed(self, node: NodeState, now: datetime) -> bool:
        return node.published_at is None or now - node.published_at >= self._report_interval

    def silent_after(self, windows: NodeWindows | None) -> timedelta:
        """How long a node may send no samples before its state is unknown."""
        if self.config.silent_after_seconds:
            return timedelta(seconds=self.config.silent_after_seconds)
        span = timedelta(milliseconds=windows.period_ms if windows is not None else 0)
        return max(3 * self._report_interval, 3 * span, SHORTEST_SILENCE)

    def _ended(self, name: str, node: NodeState) -> Event | None:
        if node.published is None:
            return None
        last = msgspec.structs.replace(node.published, digest=None)
        return ending(metrics_subject(name), last)

    @staticmethod
    def _event(name: str, node: NodeState, metric: NodeMetricComputed) -> Event:
        causes = tuple(f"USAGE:{sequence}" for sequence in node.causes)
        return Event(subject=metrics_subject(name), data=metric, causes=(*causes, f"LOG:{node.declared}"))
