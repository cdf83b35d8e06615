"""The service's metrics; predictions by koordlet's names, as dashboards made for Koordinator read them.

In: the core. Out: values with their labels. Upstream's koordlet shows what its own node predicts; here metrics-ingest predicts
for all nodes, so it shows them, of the first MOST_NODES by name; those of all others are summed under one more value of the
label. A node is shown while its samples arrive. Source: koordlet's resource summary and prediction collectors.
"""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.engine.definition import Gauge
from cotenant.events.node.metrics import Usage
from cotenant.model.tiers import PriorityClass
from cotenant_metrics_ingest.core import EARLY_FULL, NO_NODE, MetricsIngestCore
from cotenant_metrics_ingest.node_state import PredictionFigures
from cotenant_metrics_ingest.windows.node_windows import BACKWARDS, FUTURE, MALFORMED, TOO_OLD

REASONS = (MALFORMED, BACKWARDS, FUTURE, TOO_OLD, NO_NODE, EARLY_FULL)
MOST_NODES = 1_000
OTHER_NODES = "(others)"
PREDICTORS = {"pod": "podReclaimablePredictor", "priority": "priorityReclaimablePredictor"}
"""Koordinator's names of two predictors; the forecast by time of day keeps its own."""
RESULT = "minPredictor"
"""Koordinator's name of the one whose result counts."""
_PROD = {"priority": PriorityClass.PROD.value}

Value = tuple[float, dict[str, str]]


def _by_node(core: MetricsIngestCore) -> Iterator[tuple[str, PredictionFigures]]:
    """The nodes whose samples arrive, by name, each with the label under which it is published."""
    for place, (name, figures) in enumerate(sorted(core.predictions().items())):
        yield name if place < MOST_NODES else OTHER_NODES, figures


def _amounts(usages: Iterator[tuple[tuple[tuple[str, str], ...], Usage]]) -> Iterator[Value]:
    """Usages under their labels, those of the same labels summed: cores and bytes."""
    sums: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for labels, usage in usages:
        held = sums.setdefault(labels, [0, 0])
        held[0] += usage.cpu_milli
        held[1] += usage.memory_bytes
    for labels, (cpu_milli, memory_bytes) in sums.items():
        yield cpu_milli / 1000, {**dict(labels), "resource": "cpu", "unit": "core"}
        yield float(memory_bytes), {**dict(labels), "resource": "memory", "unit": "byte"}


def _reclaimable(core: MetricsIngestCore) -> Iterator[Value]:
    return _amounts(
        ((("node", node), *_PROD.items()), figures.reclaimable or Usage()) for node, figures in _by_node(core)
    )


def _failed(core: MetricsIngestCore) -> Iterator[Value]:
    failed: dict[str, int] = {}
    for node, figures in _by_node(core):
        failed[node] = failed.get(node, 0) + (figures.reclaimable is None)
    for node, count in failed.items():
        yield count, {"node": node, **_PROD}


def _of_predictors(core: MetricsIngestCore, *, peaks: bool) -> Iterator[tuple[tuple[tuple[str, str], ...], Usage]]:
    for node, figures in _by_node(core):
        for predictor, reclaimable, peak in figures.predictors:
            name = PREDICTORS.get(predictor, predictor)
            yield (("node", node), ("predictor", name)), peak if peaks else reclaimable
        result = figures.peak if peaks else figures.reclaimable
        if result is not None:
            yield (("node", node), ("predictor", RESULT)), result


GAUGES = (
    Gauge(
        "cotenant_refused_usage_messages",
        "Usage messages that were not taken, by reason",
        lambda core: [(core.refusals.get(reason, 0), {"reason": reason}) for reason in REASONS],
        counts=True,
    ),
    Gauge(
        "slo_controller_nodemetric_reconcile_count",
        "NodeMetrics stored, by Koordinator's name",
        lambda core: [(count, {"status": status}) for status, count in core.stored.items()],
    ),
    Gauge(
        "koordlet_node_priority_resource_reclaimable",
        "The part of their requests that prod pods are predicted not to need, in cores and bytes; 0 without a prediction",
        _reclaimable,
    ),
    Gauge(
        "koordlet_node_resource_priority_reclaimable_status",
        "1 if that could not be predicted, else 0",
        _failed,
    ),
    Gauge(
        "koordlet_node_predicted_resource_reclaimable",
        "The same by predictor, in cores and bytes",
        lambda core: _amounts(_of_predictors(core, peaks=False)),
    ),
    Gauge(
        "koordlet_node_predicted_resource_peak",
        "The predicted peak of services and the system by predictor, with the safety margin, in cores and bytes",
        lambda core: _amounts(_of_predictors(core, peaks=True)),
    ),
)
