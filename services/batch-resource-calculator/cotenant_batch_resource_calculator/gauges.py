"""The metrics of Koordinator's slo-controller, by its names: dashboards made for it read this service.

In: the core. Out: values with their labels. Counters start at 0 with each load; they keep Koordinator's names, which do not end
in `_total`. `nodemetric_reconcile_count` is not among them: NodeMetrics are metrics-ingest's.

Bound: NODES_SHOWN nodes, by name, for the amounts of single nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from cotenant.engine.definition import Gauge
from cotenant.model.tiers import OVERCOMMITTED
from cotenant_batch_resource_calculator.core import BatchResourceCalculator

NODES_SHOWN = 1000
_CORE, _BYTE = "core", "byte"

Value = tuple[float, dict[str, str]]


def _of(read: Callable[[BatchResourceCalculator], Counter[str]]) -> Callable[[BatchResourceCalculator], Iterable[Value]]:
    def values(core: BatchResourceCalculator) -> Iterable[Value]:
        return [(count, {"status": status}) for status, count in sorted(read(core).copy().items())]

    return values


def _reconciled(core: BatchResourceCalculator) -> Iterator[Value]:
    for (status, reason), count in sorted(core.counts.resources.copy().items()):
        yield count, {"status": status, "reason": reason}


def _plugins(core: BatchResourceCalculator) -> Iterator[Value]:
    for (plugin, status, reason), count in sorted(core.counts.plugins.copy().items()):
        yield count, {"plugin": plugin, "status": status, "reason": reason}


def _allocatable(core: BatchResourceCalculator) -> Iterator[Value]:
    """Before foreign shares and normalisation: cores and bytes."""
    for name, resources in core.published(NODES_SHOWN):
        terms = {term.name: term for term in resources.terms}
        batch, mid = terms.get("calculated"), terms.get("mid")
        if batch is None or mid is None:
            continue
        amounts = (batch.cpu_milli, batch.memory_bytes, mid.cpu_milli, mid.memory_bytes)
        for resource, amount, unit in zip(OVERCOMMITTED, amounts, (_CORE, _BYTE, _CORE, _BYTE), strict=True):
            shown = amount / 1000 if unit == _CORE else float(amount)
            yield shown, {"node": name, "resource": resource, "unit": unit}


GAUGES = (
    Gauge("slo_controller_node_resource_reconcile_count", "Resources events stored", _reconciled),
    Gauge("slo_controller_node_resource_run_plugin_status", "The same by calculation", _plugins),
    Gauge("slo_controller_nodeslo_reconcile_count", "NodeSLOs stored", _of(lambda core: core.counts.slos)),
    Gauge(
        "slo_controller_nodeslo_spec_parse_count",
        "ConfigMaps by whether their NodeSLO sections could be read",
        _of(lambda core: core.counts.slo_specs),
    ),
    Gauge(
        "slo_controller_nodemetric_spec_parse_count",
        "ConfigMaps by whether their colocation section could be read",
        _of(lambda core: core.counts.metric_specs),
    ),
    Gauge(
        "slo_controller_node_extended_resource_allocatable_internal",
        "Batch and mid resources of a node before foreign shares and normalisation, in cores and bytes",
        _allocatable,
    ),
)
