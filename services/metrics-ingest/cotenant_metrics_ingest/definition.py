"""The service definition for its process and the simulator. The service measures, so replay skips it."""

from cotenant.engine.definition import GATHERED, ServiceDefinition
from cotenant.events.node.sized_usage import UsageView
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.core import CORE_VERSION, FILTERS, USAGE_FILTERS, MetricsIngestCore
from cotenant_metrics_ingest.gauges import GAUGES
from cotenant_metrics_ingest.node_state import ExecutorView, StrategyView
from cotenant_metrics_ingest.prediction.node import PredictionPlacement

DEFINITION = ServiceDefinition(
    name="metrics-ingest",
    core_version=CORE_VERSION,
    filters=FILTERS,
    usage_filters=USAGE_FILTERS,
    config_type=MetricsConfig,
    make_core=MetricsIngestCore,
    recomputed=False,
    gauges=GAUGES,
    views=(StrategyView, ExecutorView, PredictionPlacement, UsageView),
    traced=("usage.", "objects.core.nodes."),
    gather=GATHERED,
    summary="aggregates usage samples into NodeMetrics: means, percentiles per window, and nodes without samples",
)
