"""node-metrics vectors of peak prediction: decaying histograms."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from cotenant_metrics_ingest.prediction.buckets import Buckets
from cotenant_metrics_ingest.prediction.histogram import YEAR_ONE, Checkpoint, HistogramError, Histograms

Json = dict[str, Any]
ROW = np.array([0])
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)


def histogram(given: Json) -> object:
    made = _made(given)
    try:
        _apply(made, given["operations"], given)
    except HistogramError:
        return {"results": [], "error": True}
    return {"results": [_answer(made, query) for query in given["queries"]], "error": False}


def _made(given: Json) -> Histograms:
    options = given["options"]
    if options["type"] == "linear":
        buckets = Buckets(options["max_value"], options["bucket_size"])
    else:
        buckets = Buckets(options["max_value"], options["first_bucket_size"], options["ratio"])
    return Histograms(buckets, given["half_life_seconds"], options["epsilon"], rows=1)


def _apply(made: Histograms, operations: list[Json], given: Json) -> None:
    for operation in operations:
        match operation["op"]:
            case "add":
                made.add(ROW, np.array([float(operation["value"])]), operation["weight"], operation["time_unix"])
            case "subtract":
                made.subtract(0, operation["value"], operation["weight"], operation["time_unix"])
            case "merge":
                # Nothing merges two histograms: whoever wants the sum adds what is in both.
                _apply(made, operation["operations"], given)
            case "load":
                document = operation["checkpoint"]
                if document is None:
                    made.load(None)
                else:
                    weights = {int(bucket): weight for bucket, weight in document["bucketWeights"].items()}
                    made.load(Checkpoint(weights, document["totalWeight"], _seconds(document)))
            case _:
                raise NotImplementedError(operation["op"])


def _seconds(document: Json) -> float:
    text = document.get("referenceTimestamp")
    if text is None:
        return YEAR_ONE
    return YEAR_ONE + (datetime.fromisoformat(text) - _YEAR_ONE).total_seconds()


def _shown(seconds: float) -> str:
    return (_YEAR_ONE + timedelta(seconds=seconds - YEAR_ONE)).strftime("%Y-%m-%dT%H:%M:%SZ").zfill(20)


def _weights(made: Histograms) -> Json:
    return {str(bucket): weight for bucket, weight in enumerate(made.weights(0).tolist()) if weight}


def _answer(made: Histograms, query: Json) -> object:
    match query["q"]:
        case "percentile":
            return float(made.percentiles([query["p"]])[0, 0])
        case "is_empty":
            # The end of a bucket in use is above 0.
            return not made.percentiles([1.0])[0, 0]
        case "num_buckets":
            return made.buckets.count
        case "bucket_start":
            return made.buckets.start(query["n"])
        case "find_bucket":
            return made.buckets.find(query["value"])
        case "checkpoint":
            saved = made.checkpoint(0)
            document = {
                "totalWeight": saved.total_weight,
                "bucketWeights": {str(bucket): weight for bucket, weight in saved.weights.items()},
            }
            return document if made.half_life is None else document | {"referenceTimestamp": _shown(saved.reference_seconds)}
        case "bucket_weights":
            return _weights(made)
        case "total_weight":
            return float(made.totals[0])
        case "reference_timestamp":
            return _shown(float(made.references[0]))
    raise NotImplementedError(query["q"])
