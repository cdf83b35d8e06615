"""The service definition for its process and the simulator. The service measures, so replay skips it."""

from cotenant.engine.definition import GATHERED, Definition
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.core import CORE_VERSION, FILTERS, USAGE_FILTERS, MetricsIngestCore

DEFINITION = Definition(
    name="metrics-ingest",
    core_version=CORE_VERSION,
    filters=FILTERS,
    usage_filters=USAGE_FILTERS,
    config_type=MetricsConfig,
    make_core=MetricsIngestCore,
    recomputed=False,
    gather=GATHERED,
    summary="aggregates usage samples into NodeMetrics: means, percentiles per window, and nodes without samples",
)
