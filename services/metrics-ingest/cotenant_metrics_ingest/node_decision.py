"""Decisions on one node's state: its report, its silence, its end, the storing of its models.

In: a node's state, the time. Out: a due report, an event, or nothing; and when time alone can change that.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.predictions import PredictionState
from cotenant.log.contract import ending
from cotenant.model.subjects import metrics_subject, predictions_subject
from cotenant.model.times import NEVER
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.node_report import DueReport, with_digest
from cotenant_metrics_ingest.node_state import NodeMetricState
from cotenant_metrics_ingest.policy import MemoryPolicy, PolicyInForce, policy_in_force
from cotenant_metrics_ingest.prediction.checkpoints import MAX_AT_ONCE, due_checkpoints, states_of
from cotenant_metrics_ingest.prediction.models import ModelStore
from cotenant_metrics_ingest.windows.node_windows import NodeWindows, WindowSizes

SHORTEST_SILENCE = timedelta(seconds=10)

_sizes = lru_cache(maxsize=256)(WindowSizes.of)


def sizes_of(policy: PolicyInForce) -> WindowSizes:
    """The sizes of windows under a policy; the same object for the same sizes."""
    return _sizes(policy.aggregate_seconds, policy.durations_seconds)


def windows_under(policy: PolicyInForce, windows: NodeWindows | None) -> NodeWindows:
    """A node's windows in the sizes of its policy; those of others start over (`NodeWindows.resized`)."""
    sizes = sizes_of(policy)
    if windows is None:
        return NodeWindows(sizes)
    return windows if windows.sizes is sizes else windows.resized(sizes)


class NodeDecisions:
    """The rules under the service's configuration."""

    def __init__(self, config: MetricsConfig) -> None:
        self.config = config
        self._own_policy = PolicyInForce(
            config.report_interval_seconds,
            config.aggregate_duration_seconds,
            tuple(config.durations_seconds),
            MemoryPolicy.WITHOUT_PAGE_CACHE,
        )

    def policy(self, node: NodeMetricState) -> PolicyInForce:
        """The collect policy that the node is under."""
        if node.in_force is None:
            node.in_force = policy_in_force(node.policy, self._own_policy)
        return node.in_force

    def interval(self, node: NodeMetricState) -> timedelta:
        """The shortest time between two reports."""
        return timedelta(seconds=self.policy(node).report_interval_seconds)

    def silent_after(self, node: NodeMetricState) -> timedelta:
        """How long a node may send no samples before its state is unknown."""
        if self.config.silent_after_seconds:
            return timedelta(seconds=self.config.silent_after_seconds)
        span = timedelta(milliseconds=node.period_ms)
        return max(3 * self.interval(node), 3 * span, SHORTEST_SILENCE)

    def next_look(self, node: NodeMetricState, listening_since: datetime | None) -> datetime:
        """When a node's next report may become due with time alone. `listening_since`: silence counts only while
        this service was running, as it receives nothing during its own downtime."""
        if not node.declared:
            return NEVER
        times = [NEVER]
        if node.changed and node.published_at is not None:
            times.append(node.published_at + self.interval(node))
        since = node.last_sign()
        if since is not None and (node.published is None or node.published.unknown_since is None):
            times.append(max(since, listening_since or since) + self.silent_after(node))
        return min(times)

    def follows(
        self, name: str, node: NodeMetricState, now: datetime, listening_since: datetime | None
    ) -> Event | DueReport | None:
        """The decision on a node now."""
        if not node.declared:
            return self._ended(name, node)
        published, windows = node.published, node.windows
        unknown = published is not None and published.unknown_since is not None
        if node.changed and windows is not None and windows.last_ms:
            heard = node.last_sample_at or now
            again = unknown and (published is None or published.update_time is None or heard > published.update_time)
            passed = node.published_at is None or now - node.published_at >= self.interval(node)
            if published is None or not published.measured or again or passed:
                return DueReport(
                    node=name,
                    windows=windows,
                    update_time=heard,
                    refused_samples=node.refused,
                    refused_reason=node.refused_reason,
                    policy=self.policy(node),
                    services_peak=node.prediction.services_peak if node.prediction is not None else None,
                    contention=node.contention.averages() if node.contention is not None else {},
                )
        since = node.last_sign()
        if unknown or since is None:
            return None
        if now - max(since, listening_since or now) < self.silent_after(node):
            return None
        last = published.metric() if published is not None else self._never_reported(name, node)
        if published is not None and published.measured and last.digest is None and windows is not None:
            last = with_digest(last, windows)
        metric = msgspec.structs.replace(
            last, unknown_since=since, refused_samples=node.refused, refused_reason=node.refused_reason
        )
        return metric_event(name, node, metric)

    def _never_reported(self, name: str, node: NodeMetricState) -> NodeMetricComputed:
        policy = self.policy(node)
        return NodeMetricComputed(
            node=name,
            report_interval_seconds=max(1, round(policy.report_interval_seconds)),
            aggregate_duration_seconds=policy.aggregate_seconds,
            durations_seconds=policy.durations_seconds,
            memory_collect_policy=policy.memory.value,
        )

    @staticmethod
    def _ended(name: str, node: NodeMetricState) -> Event | None:
        if node.published is None:
            return ending(predictions_subject(name), PredictionState(node=name)) if node.stored_at is not None else None
        last = msgspec.structs.replace(node.published.metric(), digest=None)
        return ending(metrics_subject(name), last)

    def states(
        self, reported: Iterable[tuple[str, NodeMetricState]], store: ModelStore, now: datetime, room: int
    ) -> Sequence[Event]:
        """The models of reported nodes that are due, at most this many; HISTORY does not take them over, so they are the last
        of a decision."""
        interval = self.config.prediction_checkpoint_seconds
        nodes = dict(reported)
        ages = {
            name: age
            for name, node in nodes.items()
            if (age := node.seconds_since_stored(name, now, interval)) is not None
        }
        due = due_checkpoints(ages, interval, min(room, MAX_AT_ONCE))
        wanted = [prediction.to_store(name) for name in due if (prediction := nodes[name].prediction) is not None]
        return [
            Event(
                subject=predictions_subject(state.node),
                data=state,
                causes=(f"LOG:{nodes[state.node].declared}",),
                replaces=True,
            )
            for state in states_of(wanted, store, now)
        ]


def metric_event(name: str, node: NodeMetricState, metric: NodeMetricComputed) -> Event:
    """The event of a node's metrics, with its causes."""
    causes = tuple(f"USAGE:{sequence}" for sequence in node.causes)
    return Event(subject=metrics_subject(name), data=metric, causes=(*causes, f"LOG:{node.declared}"))
