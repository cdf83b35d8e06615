"""NodeMetric: averages and percentiles per window, written by metrics-ingest on `metrics.<node>`."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Part, Payload
from cotenant.model.bounds import Amount, Count, Int32, Int64, Milliseconds, Seconds


class Usage(Part, frozen=True, kw_only=True):
    """CPU in milli-cores and memory working set in bytes."""

    cpu_milli: Amount = 0
    memory_bytes: Amount = 0


class AggregatedUsage(Part, frozen=True, kw_only=True):
    """Percentiles and average of one window."""

    duration_seconds: Seconds
    p50: Usage = Usage()
    p90: Usage = Usage()
    p95: Usage = Usage()
    p99: Usage = Usage()
    avg: Usage = Usage()


class Contention(Part, frozen=True, kw_only=True):
    """Contention of a pod: averages over its messages since the last report, -1 if not measured.

    `throttled_permille`: throttled periods per thousand. `*_some`, `*_full`: PSI over 10 s, in hundredths of a percent.
    `cpi_thousandths`: cycles per thousand instructions.
    """

    throttled_permille: Int32 = -1
    cpu_some: Int32 = -1
    memory_some: Int32 = -1
    memory_full: Int32 = -1
    io_some: Int32 = -1
    io_full: Int32 = -1
    cpi_thousandths: Int64 = -1


class PodMetric(Part, frozen=True, kw_only=True):
    """Average usage of one pod over the report window."""

    namespace: str
    name: str
    uid: str = ""
    priority: str = ""
    qos: str = ""
    usage: Usage = Usage()
    contention: Contention = Contention()


class NumaMetric(Part, frozen=True, kw_only=True):
    """Usage of one NUMA node at the newest sample."""

    node: Count = 0
    usage: Usage = Usage()


class ModelPeaks(Part, frozen=True, kw_only=True):
    """Predicted percentiles of one model: `__node__`, `__node-sys__`, `__node-<tier>__`, or a pod's uid."""

    model: str
    p60: Usage = Usage()
    p90: Usage = Usage()
    p95: Usage = Usage()
    p98: Usage = Usage()
    max: Usage = Usage()


class PredictorTerms(Part, frozen=True, kw_only=True):
    """What one predictor (`pod`, `priority`, or `timeOfDay`, which counts where that forecast is in force).

    `request` of the pods that it counts, less `peak`, their predicted peak with the safety margin, at most `cap`, which that
    peak leaves of the node's allocatable.
    """

    predictor: str
    request: Usage = Usage()
    peak: Usage = Usage()
    cap: Usage = Usage()
    reclaimable: Usage = Usage()


class ResourceForecast(Part, frozen=True, kw_only=True):
    """One resource's forecasts by time of day and by histogram, of a node that is configured for the former: the peak of the
    system and prod pods, in milli-cores (`resource` cpu) or bytes (memory).

    `by_time_of_day`: which one is in force. None: unknown. A cost is a forecast's error over the last quarter
    hours: what it withheld needlessly, and by how much it was too low in all but 1 in 20; `quarters` were compared so far.
    """

    resource: str
    by_time_of_day: bool = False
    time_of_day: Amount | None = None
    histogram: Amount | None = None
    time_of_day_cost: Count = 0
    histogram_cost: Count = 0
    quarters: Count = 0


class ProdPrediction(Part, frozen=True, kw_only=True):
    """The inputs of `prod_reclaimable`; if that is None, `error` states why.

    `cold`: prod pods younger than the cold start, which add nothing. `unpredicted`: those without a model, which take part in
    neither predictor. `unplaced`: pods with samples and no placement, whose requests are unknown. `trainings`: how often the
    models were trained since the process started or `restored`, the event of their stored state (empty: from nothing).
    """

    predictors: tuple[PredictorTerms, ...] = ()
    models: tuple[ModelPeaks, ...] = ()
    allocatable: Usage = Usage()
    margin_percent: Int32 = 0
    cold_start_seconds: Seconds = 0
    cold: Count = 0
    unpredicted: Count = 0
    unplaced: Count = 0
    trained_at: datetime | None = None
    trainings: Count = 0
    restored: str = ""
    error: str = ""
    forecasts: tuple[ResourceForecast, ...] = ()
    """Of nodes that are configured for the forecast by time of day."""


class HostApplicationMetric(Part, frozen=True, kw_only=True):
    """Average usage of one application outside pods."""

    name: str
    priority: str = ""
    qos: str = ""
    usage: Usage = Usage()


class SlotDigest(Part, frozen=True, kw_only=True):
    """Percentile windows' state: closed slots as LEB128 integers, and the open slot's samples as they are.

    A closed slot: its number (time by width), its first and last sample's milliseconds since its start, the sums of
    the four series, then per series how many samples it had and those that are kept, ascending, each as the difference
    to the one before. The four series: node cpu, node memory, system cpu, system memory.
    """

    width_ms: Milliseconds
    closed: bytes = b""
    open_slot: Int64 = -1
    open_first_ms: Milliseconds = 0
    open_last_ms: Milliseconds = 0
    open_series: tuple[tuple[int, ...], ...] = ((), (), (), ())


class MeanDigest(Part, frozen=True, kw_only=True):
    """Mean windows' state. `rows`: of whom; a pod's uid, else NUL and `node`, `system` or `host/<name>`.

    `sums`: LEB128 integers, per slot how many rows it has, then their counts, their cpu sums, their memory sums; the
    last slot is the open one.
    """

    width_ms: Milliseconds
    slots: tuple[Int64, ...] = ()
    rows: tuple[str, ...] = ()
    sums: bytes = b""


class WindowDigest(Part, frozen=True, kw_only=True):
    """State for a restart. `last_ms`: time of the newest sample folded, by the node's clock."""

    boot: str = ""
    counter: Count = 0
    last_ms: Milliseconds = 0
    span_ms: Milliseconds = 0
    """Interval of the node's messages."""
    slots: SlotDigest
    means: MeanDigest


class NodeMetricComputed(Payload, frozen=True, kw_only=True):
    """State of a node's metrics. `update_time` is when the last sample was taken into the windows (log time).

    `unknown_since` is set while the node is silent: the figures are then the last known ones and must not
    be acted on. `digest` carries the windows' own state, so that a restart continues from it. A window that is
    younger than half of its duration has no values: it is in `cold_windows` (seconds) and not among the aggregated
    usages. `refused_samples` counts messages of the node that did not enter the windows; `refused_reason`: why the
    last one did not.
    """

    TYPE = "cotenant.nodemetric.v1"
    SUBJECT = "metrics.{node}"

    node: str
    update_time: datetime | None = None
    unknown_since: datetime | None = None
    report_interval_seconds: Seconds = 60
    aggregate_duration_seconds: Seconds = 300
    node_usage: Usage = Usage()
    system_usage: Usage = Usage()
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    aggregated_system_usages: tuple[AggregatedUsage, ...] = ()
    cold_windows: tuple[Seconds, ...] = ()
    pods: tuple[PodMetric, ...] = ()
    host_applications: tuple[HostApplicationMetric, ...] = ()
    prod_reclaimable: Usage | None = None
    """The part of their requests that services are predicted not to need; None without a prediction."""
    prod_peak: Usage | None = None
    """The predicted peak of services and the system, with the safety margin: the larger of that of pods and of tiers."""
    services_peak: Usage | None = None
    """The peak of services (all but batch and free) and the system together at one sample since the last report; None
    if not measured."""
    prediction: ProdPrediction | None = None
    durations_seconds: tuple[Seconds, ...] = ()
    """The percentile windows of the node's collect policy."""
    memory_collect_policy: str = "usageWithoutPageCache"
    """Which memory counts in the figures of node, pods and host applications; the system's never has page cache."""
    numa: tuple[NumaMetric, ...] = ()
    refused_samples: Count = 0
    refused_reason: str = ""
    digest: WindowDigest | None = None
