"""The basis of a prediction, in words: the predictors, the models, the forecasts by time of day and their errors.

In: the terms of a node's metrics event. Out: named figures, the most important first.
"""

from __future__ import annotations

from cotenant.events.node.metrics import ProdPrediction, ResourceForecast, Usage


def cores(milli: int) -> str:
    """Return milli-cores as people read them: 1500 -> 1.50 cores."""
    return f"{milli / 1000:.2f} cores"


def mebibytes(amount: int) -> str:
    """Return bytes as people read them."""
    return f"{amount / 2**30:.2f} GiB" if abs(amount) >= 2**30 else f"{amount / 2**20:.1f} MiB"


def prediction_figures(prediction: ProdPrediction) -> dict[str, str]:
    """What is reclaimable of prod pods, by predictor, and the percentiles of the models that it rests on."""
    found = {f"forecast of {each.resource}": _forecast(each) for each in prediction.forecasts}
    for terms in prediction.predictors:
        parts = (("requests", terms.request), ("peak", terms.peak), ("at most", terms.cap), ("gives", terms.reclaimable))
        found[f"{terms.predictor} predictor"] = ", ".join(f"{word} {_shown(usage)}" for word, usage in parts)
    for model in prediction.models:
        found[f"model {model.model}"] = f"p95 {_shown(model.p95)}, p98 {_shown(model.p98)}"
    if prediction.error:
        found["prediction"] = prediction.error
    return found


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
