"""The service definition for its process and the simulator. The service measures, so replay skips it."""

from cotenant.engine.definition import GATHERED, Definition, Gauge
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.core import CORE_VERSION, EARLY_FULL, FILTERS, NO_NODE, USAGE_FILTERS, MetricsIngestCore
from cotenant_metrics_ingest.node_state import ExecutorView, StrategyView
from cotenant_metrics_ingest.prediction.node import PlacementView
from cotenant_metrics_ingest.windows.node_windows import BACKWARDS, FUTURE, MALFORMED, TOO_OLD

REASONS = (MALFORMED, BACKWARDS, FUTURE, TOO_OLD, NO_NODE, EARLY_FULL)
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
)

DEFINITION = Definition(
    name="metrics-ingest",
    core_version=CORE_VERSION,
    filters=FILTERS,
    usage_filters=USAGE_FILTERS,
    config_type=MetricsConfig,
    make_core=MetricsIngestCore,
    recomputed=False,
    gauges=GAUGES,
    views=(StrategyView, ExecutorView, PlacementView),
    traced=("usage.", "objects.core.nodes."),
    gather=GATHERED,
    summary="aggregates usage samples into NodeMetrics: means, percentiles per window, and nodes without samples",
)
