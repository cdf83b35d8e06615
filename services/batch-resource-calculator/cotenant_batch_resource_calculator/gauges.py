"""The metrics of Koordinator's slo-controller, by its names: dashboards made for it read this service.

In: the core. Out: values with their labels. Counters start at 0 with each load; they keep Koordinator's names, which do not end
in `_total`. `nodemetric_reconcile_count` is metrics-ingest's, which writes NodeMetrics. Amounts are shown by node, of the first
MOST_NODES by name; those of all others are summed under one more value of the label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from cotenant.engine.definition import Gauge
from cotenant.model.tiers import OVERCOMMITTED
from cotenant_batch_resource_calculator.core import BatchResourceCalculator
from cotenant_batch_resource_calculator.counts import FAILED, PLUGINS, SUCCEEDED

MOST_NODES = 1_000
OTHER_NODES = "(others)"
_STATUSES = (FAILED, SUCCEEDED)
_UNITS = ("core", "byte", "core", "byte")

Value = tuple[float, dict[str, str]]


def _of(read: Callable[[BatchResourceCalculator], Counter[str]]) -> Callable[[BatchResourceCalculator], Iterable[Value]]:
    def values(core: BatchResourceCalculator) -> Iterable[Value]:
        counts = read(core)
        return [(counts[status], {"status": status}) for status in _STATUSES]

    return values


def _reconciled(core: BatchResourceCalculator) -> Iterator[Value]:
    found = {(SUCCEEDED, ""): 0, **core.counts.resources}
    for (status, reason), count in sorted(found.items()):
        yield count, {"status": status, "reason": reason}


def _plugins(core: BatchResourceCalculator) -> Iterator[Value]:
    found = {**{(plugin, SUCCEEDED, ""): 0 for plugin in PLUGINS}, **core.counts.plugins}
    for (plugin, status, reason), count in sorted(found.items()):
        yield count, {"plugin": plugin, "status": status, "reason": reason}


def _allocatable(core: BatchResourceCalculator) -> Iterator[Value]:
    """Before foreign shares and normalisation: cores and bytes."""
    published = core.published()
    names = sorted(resources.node for resources in published)
    shown = {name: [0, 0, 0, 0] for name in names[:MOST_NODES]}
    if len(names) > MOST_NODES:
        shown[OTHER_NODES] = [0, 0, 0, 0]
    for resources in published:
        terms = {term.name: term for term in resources.terms}
        batch, mid = terms.get("calculated"), terms.get("mid")
        if batch is not None and mid is not None:
            node = resources.node if resources.node in shown else OTHER_NODES
            amounts = (batch.cpu_milli, batch.memory_bytes, mid.cpu_milli, mid.memory_bytes)
            shown[node] = [held + more for held, more in zip(shown[node], amounts, strict=True)]
    for node, sums in shown.items():
        for resource, amount, unit in zip(OVERCOMMITTED, sums, _UNITS, strict=True):
            yield amount / 1000 if unit == "core" else float(amount), {"node": node, "resource": resource, "unit": unit}


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
        "Batch and mid resources of each node before foreign shares and normalisation, in cores and bytes",
        _allocatable,
    ),
)
