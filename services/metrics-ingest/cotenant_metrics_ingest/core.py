"""The metrics-ingest service's core: computes NodeMetrics from usage samples.

Folds `usage.<node>` (stream USAGE), Node objects, executors' reports and placements, the colocation strategy in
`node.<node>.resources`, and its own `metrics.<node>` and `predictions.<node>`. Decides, per node with an object: a
NodeMetricComputed when samples were accepted (or refused) since the last one and the report interval has passed; at once at
a node's first samples or the first ones after silence; and one with `unknown_since` when no sample came for the silent time
(see `silent_after`), which includes nodes that never sent one. When a node's object is deleted, its metrics end.

Time: windows are aligned to the node's clock, which is checked against the log's; staleness depends on the log's time alone.
The core takes the log's time from its own events and from the last decision. The service measures and is not recomputed, so
the first decision may end the load: until then samples are queued, as a node's digest and its newer samples arrive in any
order. After it EARLY_AT_ONCE of them are taken with each decision, later ones after them, and a node's windows and models are
restored with its first sample, so that a cell does not wait for its last node. A node is evaluated again only after one of
its events was folded, or when time changes its result.

Prediction: the models of a node are trained when a message has ended a minute of its clock (`prediction`), those of many nodes
together, and stored on `predictions.<node>` for a restart, one node after the other.

Bounds: one NodeState per node (see `node_state`); MAX_EARLY queued messages during the load; samples of nodes without an object
are counted and dropped; TRAINED_AT_ONCE intervals waiting for training.

Over 300 lines: one fold for each kind of fact, and the queue of samples that all of them may release.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.engine.agenda import Agenda
from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event, encode_payload
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.node.usage import UsageSample
from cotenant.events.objects import ObjectStored
from cotenant.log.contract import USAGE
from cotenant.model.subjects import PREDICTIONS, tokens
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.counted_memory import counted
from cotenant_metrics_ingest.node_decision import NodeDecisions, metric_event, sizes_of, windows_under
from cotenant_metrics_ingest.node_report import DueReport, reports_of
from cotenant_metrics_ingest.node_state import (
    NO_STRATEGY,
    ExecutorView,
    NodeMetricState,
    PredictionFigures,
    PublishedReport,
    StrategyView,
    forecasts_of,
)
from cotenant_metrics_ingest.prediction.models import Training
from cotenant_metrics_ingest.prediction.node import PredictionStore, train
from cotenant_metrics_ingest.samples import Samples, samples_of
from cotenant_metrics_ingest.windows.node_windows import MALFORMED, REPEATED, fold

CORE_VERSION = "5"
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
EARLY_AT_ONCE = 2_000
LOOK_EVERY = timedelta(milliseconds=25)
"""How often nodes are evaluated, at most; urgent ones also in between. LOG syncs each batch six times, whatever its size."""
TRAIN_EVERY = timedelta(milliseconds=500)
"""How often nodes are trained, at most: many together cost less. A report has the models of the last training."""
TRAINED_AT_ONCE = 256
"""With this many nodes waiting for training, they are trained at once."""
NO_NODE = "NoNodeObject"
EARLY_FULL = "TooManyWhileLoading"

_SAMPLE = msgspec.json.Decoder(UsageSample)
_NOTHING = UsageSample(node="")


class MetricsIngestCore:
    """The mutable core; see the module."""

    def __init__(self, config: MetricsConfig | None = None) -> None:
        self.config = config or MetricsConfig()
        self._decisions = NodeDecisions(self.config)
        self._predictions = PredictionStore(self.config.prediction_safety_margin_percent)
        self.refusals: dict[str, int] = {}
        """Messages refused since the start, by reason."""
        self.stored = {"succeeded": 0, "failed": 0}
        """NodeMetrics stored since the load, by whether the node sent samples."""
        self._sequences = LastSequences()
        self._nodes: dict[str, NodeMetricState] = {}
        self._loaded = False
        self._early: list[tuple[Event, bytes]] = []
        """Samples that arrived before the first decision, or after one still queued: the event without data, and its data."""
        self._catching_up: list[Training] = []
        """Intervals to train restored models with."""
        self._log_time: datetime | None = None
        self._log_ms = 0
        """The log's time in milliseconds since the epoch; 0 while it is not known."""
        self._listening_since: datetime | None = None
        self._to_train: list[NodeMetricState] = []
        self._urgent: set[str] = set()
        self._agenda = Agenda()
        """Nodes with an event folded or stored since they last had nothing to report."""
        self._next_look: datetime | None = None
        self._next_training: datetime | None = None

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one event."""
        data = event.data
        if isinstance(data, UsageSample) and event.stream == USAGE:
            if self._loaded and not self._early:
                self._take(event, data)
            else:
                self._queue(event, data)
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

    def _node_of(self, name: str) -> NodeMetricState:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeMetricState()
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
            node.stored, node.stored_at, node.stored_ms = None, None, 0
        else:
            node.stored_at, node.stored_ms = event.time, event.data.trained_ms
            if not self._loaded:
                node.stored = (event.ref, event.data)
        self._forget(name)

    def _own(self, event: Event, name: str) -> None:
        node = self._node_of(name)
        self._agenda.mark(name)
        if event.time is not None:
            self._see(event.time)
        if event.tombstone or not isinstance(event.data, NodeMetricComputed):
            node.published = node.published_at = None
            node.to_restore = False
            self._urgent.discard(name)
            self._forget(name)
            return
        metric = event.data
        node.published_at = event.time
        node.published = PublishedReport.of(metric, whole=not self._loaded or node.windows is None)
        if not self._loaded:
            node.to_restore = True
            node.refused, node.refused_reason = metric.refused_samples, metric.refused_reason
            node.last_sample_at = metric.update_time
            return
        self.stored["succeeded" if metric.unknown_since is None else "failed"] += 1
        if metric.unknown_since is None and (
            node.windows is None or metric.digest is None or metric.digest.last_ms >= node.windows.last_ms
        ):
            node.changed = node.refused != metric.refused_samples
            node.causes.clear()
            if node.contention is not None:
                node.contention.clear()
            if node.prediction is not None:
                node.prediction.services_peak = None
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
        if not node.changed or not self._agenda.waits(sample.node):
            # Otherwise it is evaluated when its report is due; further samples do not make the report due earlier.
            self._agenda.mark(sample.node)
        if event.time is None or tokens(event.subject)[-1] != sample.node:
            self._refuse(node, MALFORMED, f"{event.ref} has no time, or is not on its node's subject")
            return
        if node.to_restore:
            self._restore(node)
        policy = self._decisions.policy(node)
        windows = node.windows = windows_under(policy, node.windows)
        end_ms = int(event.time.timestamp() * 1000)
        first = windows.first_new(sample, end_ms)
        measured = counted(sample, policy.memory)
        samples = samples_of(measured)
        refused = windows.take(measured, samples, end_ms, self._log_ms)
        if refused is None:
            node.accepted(event, self._log_time)
            # Prediction counts the working set under every policy.
            self._predict(node, sample, samples if measured.pods is sample.pods else None, first)
            published = node.published
            if published is None or not published.measured or published.unknown_since is not None:
                self._urgent.add(sample.node)
                self._agenda.mark(sample.node)
        elif refused.reason != REPEATED:
            self._refuse(node, refused.reason, f"{event.ref}: {refused.message}")

    def _queue(self, event: Event, sample: UsageSample) -> None:
        """Queue a sample; one that the node's last report includes is dropped."""
        node = self._nodes.get(sample.node)
        published = node.published if node is not None else None
        if published is not None and event.time is not None and event.time.timestamp() * 1000 <= published.last_ms:
            return
        if len(self._early) < MAX_EARLY:
            self._early.append((msgspec.structs.replace(event, data=_NOTHING), encode_payload(sample)))
        else:
            self._count(EARLY_FULL)

    def _predict(self, node: NodeMetricState, sample: UsageSample, samples: Samples | None, first: int) -> None:
        if node.predict_from(sample, samples, first, self._predictions):
            self._to_train.append(node)
            if len(self._to_train) >= TRAINED_AT_ONCE:
                self._train()

    def _refuse(self, node: NodeMetricState, reason: str, message: str) -> None:
        self._count(reason)
        node.refused += 1
        node.refused_reason = f"{reason}: {message}"
        node.changed = True

    def _count(self, reason: str) -> None:
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    # -- deciding ------------------------------------------------------------------------------------------------

    def decide(self, now: datetime) -> Sequence[Event]:
        """Reports that are due, by node name."""
        self._begin(now)
        if self._next_training is None or now >= self._next_training:
            self._train()
            self._next_training = now + TRAIN_EVERY
        looks = self._next_look is None or now >= self._next_look
        found: list[Event | DueReport] = []
        for name in self._agenda.due(now) if looks else sorted(self._urgent):
            node = self._nodes[name]
            one = self._decisions.follows(name, node, now, self._listening_since)
            if one is not None:
                found.append(one)
                if len(found) == MAX_EVENTS_PER_DECISION:
                    return self._reported(found, now)
            elif looks:
                self._agenda.settle(name, self._decisions.next_look(node, self._listening_since))
        if looks:
            self._next_look = now + LOOK_EVERY
        reported = [(one.node, self._nodes[one.node]) for one in found if isinstance(one, DueReport)]
        room = MAX_EVENTS_PER_DECISION - len(found)
        return [*self._reported(found, now), *self._decisions.states(reported, self._predictions.models, now, room)]

    def _reported(self, found: Sequence[Event | DueReport], now: datetime) -> Sequence[Event]:
        """Return the events; all due reports are built together."""
        wanted = [one for one in found if isinstance(one, DueReport)]
        nodes = [self._nodes[one.node] for one in wanted]
        reports = iter(reports_of(wanted, forecasts_of(nodes, self._predictions, now, self.config)))
        events = [
            metric_event(one.node, self._nodes[one.node], next(reports)) if isinstance(one, DueReport) else one
            for one in found
        ]
        return sorted(events, key=lambda event: event.subject.startswith(PREDICTIONS))

    def predictions(self) -> dict[str, PredictionFigures]:
        """The predictions of nodes whose samples arrive, by name; for another thread."""
        return {
            name: published.prediction
            for name, node in [*self._nodes.items()]
            if (published := node.published) is not None and published.measured and published.unknown_since is None
        }

    def _train(self) -> None:
        late, self._catching_up = self._catching_up, []
        self._predictions.models.train(late)
        ended, self._to_train = self._to_train, []
        fold([node.windows for node in ended if node.windows is not None])
        train([node.prediction for node in ended if node.prediction is not None], self._predictions)

    def _see(self, time: datetime) -> None:
        """Advance the log's time; it never goes back."""
        if self._log_time is None or time > self._log_time:
            self._log_time, self._log_ms = time, int(time.timestamp() * 1000)

    def _begin(self, now: datetime) -> None:
        """The first decision ends the load; each takes up to EARLY_AT_ONCE queued samples."""
        self._see(now)
        self._listening_since = self._listening_since or now
        if not self._loaded:
            self._loaded = True
            self._early.sort(key=lambda each: each[0].sequence)
        taken, self._early = self._early[:EARLY_AT_ONCE], self._early[EARLY_AT_ONCE:]
        for event, data in taken:
            self._take(event, _SAMPLE.decode(data))

    def _restore(self, node: NodeMetricState) -> None:
        """Restore windows and models before the node's first sample after the load: all their inputs are folded by then."""
        training = node.restore(sizes_of(self._decisions.policy(node)), self._predictions)
        if training is not None:
            self._catching_up.append(training)
            if len(self._catching_up) >= TRAINED_AT_ONCE:
                self._train()
