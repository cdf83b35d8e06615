"""The basis of a node's metrics, in words: means and percentiles by window, the predictors and their models, the forecasts by
time of day with their errors.

In: a node's metrics event, or the terms of its prediction. Out: named figures, the most important first; CPU and memory each.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.events.node.metrics import NodeMetricComputed, ProdPrediction, ResourceForecast, Usage


def cores(milli: int) -> str:
    """Return milli-cores as people read them: 1500 -> 1.50 cores."""
    return f"{milli / 1000:.2f} cores"


def mebibytes(amount: int) -> str:
    """Return bytes as people read them."""
    return f"{amount / 2**30:.2f} GiB" if abs(amount) >= 2**30 else f"{amount / 2**20:.1f} MiB"


def window_figures(metric: NodeMetricComputed) -> dict[str, str]:
    """The means that formulas use, and the percentiles of each window; a window with too few samples is named."""
    found = {}
    if metric.update_time is not None:
        of_node, of_system = _shown(metric.node_usage), _shown(metric.system_usage)
        found[f"mean over {metric.aggregate_duration_seconds}s"] = f"node {of_node}, system {of_system}"
    for window in metric.aggregated_node_usages:
        found[f"node over {window.duration_seconds}s"] = _percentiles(window, ("avg", "p50", "p90", "p95", "p99"))
    for seconds in metric.cold_windows:
        found[f"node over {seconds}s"] = "no percentiles yet: the samples span less than half of it"
    for application in metric.host_applications:
        found[f"application {application.name}"] = _shown(application.usage)
    return found


def prediction_figures(prediction: ProdPrediction) -> dict[str, str]:
    """What is reclaimable of prod pods, by predictor, and the percentiles of the models that it rests on."""
    found = {f"forecast of {each.resource}": _forecast(each) for each in prediction.forecasts}
    for terms in prediction.predictors:
        parts = (("requests", terms.request), ("peak", terms.peak), ("at most", terms.cap), ("gives", terms.reclaimable))
        found[f"{terms.predictor} predictor"] = ", ".join(f"{word} {_shown(usage)}" for word, usage in parts)
    for model in prediction.models:
        found[f"model {model.model}"] = _percentiles(model, ("p60", "p90", "p95", "p98", "max"))
    if prediction.error:
        found["prediction"] = prediction.error
    return found


def _percentiles(source: object, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {_shown(getattr(source, name))}" for name in names)


def _shown(usage: Usage) -> str:
    return f"{cores(usage.cpu_milli)}/{mebibytes(usage.memory_bytes)}"


def _forecast(data: ResourceForecast) -> str:
    shown = cores if data.resource == "cpu" else mebibytes

    def method_text(name: str, expected: int | None, cost: int) -> str:
        return f"{name}: {'nothing known' if expected is None else shown(expected)}, error {shown(cost)}"

    by_time = method_text("by time of day", data.time_of_day, data.time_of_day_cost)
    histogram = method_text("by histogram", data.histogram, data.histogram_cost)
    used, other = (by_time, histogram) if data.by_time_of_day else (histogram, by_time)
    return f"{used}; not used, {other}; {data.quarters} quarter hours were compared"
