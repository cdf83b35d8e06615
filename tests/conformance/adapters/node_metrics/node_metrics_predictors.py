"""node-metrics vectors of peak prediction: predictors, models, checkpoints."""

from collections.abc import Callable
from typing import Any

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import priority_default
from cotenant.events.node.metrics import Usage
from cotenant.model.names import CPU, MEMORY
from cotenant.model.quantities import format_decimal, format_milli, resource_amount
from cotenant.model.tiers import NOT_PROD
from cotenant_metrics_ingest.prediction.checkpoints import due_checkpoints
from cotenant_metrics_ingest.prediction.models import COUNTED_MODELS, living, model_ids, unknown_models
from cotenant_metrics_ingest.prediction.predictors import PodRequest, peak_of, predict

Json = dict[str, Any]
_UNLIMITED = Usage(cpu_milli=1 << 50, memory_bytes=1 << 60)
"""A node's allocatable that caps nothing: the rule before v1.6."""


def _usage(amounts: Json) -> Usage:
    return Usage(
        cpu_milli=resource_amount(CPU, amounts.get("cpu", 0)), memory_bytes=resource_amount(MEMORY, amounts.get("memory", 0))
    )


def _shown(usage: Usage | None) -> object:
    return None if usage is None else {"cpu": format_milli(usage.cpu_milli), "memory": format_decimal(usage.memory_bytes)}


def _request(document: Json) -> PodRequest:
    pod = msgspec.convert(document, Pod)
    requests = pod_requests(pod)
    return PodRequest(
        uid=pod.metadata.uid,
        prod=priority_default(pod) not in NOT_PROD,
        age_seconds=document["age_seconds"],
        request=Usage(cpu_milli=requests.get(CPU, 0), memory_bytes=requests.get(MEMORY, 0)),
        ended=pod.metadata.deletion_timestamp is not None or pod.status.phase in ("Succeeded", "Failed"),
    )


def _predict(given: Json) -> object:
    predicted = {
        model: peak_of(_usage(each["p95"]), _usage(each["p98"])) for model, each in given["predictions"].items()
    }
    missing = Usage() if given["missing_prediction"] == "zero" else None
    pods = [_request(document) for document in given["pods"]]
    if missing is not None:
        predicted = {pod.uid: missing for pod in pods} | predicted
    allocatable: Usage | None = _UNLIMITED
    if given["clamp_to_node_allocatable"]:
        allocatable = None if given["node_allocatable"] is None else _usage(given["node_allocatable"])
    found = predict(
        pods,
        predicted,
        {model: predicted.get(model, missing) for model in COUNTED_MODELS},
        allocatable=allocatable,
        cold_start_seconds=given["cold_start_seconds"],
        margin_percent=given["safety_margin_percent"],
    )
    return {
        "pod_reclaimable": _shown(found.pod.reclaimable) if found.pod is not None else None,
        "priority_reclaimable": _shown(found.priority.reclaimable) if found.priority is not None else None,
        "result": _shown(found.reclaimable),
        "pod_peak": _shown(found.pod_peak),
        "add_pod_errors": list(found.unpredicted),
        "error": found.reclaimable is None,
    }


_PREDICTORS: dict[str, Callable[[Json], object]] = {
    "predict": _predict,
    "model_uids": lambda given: {"model_uids": sorted(model_ids(given["pod_uids"], node_known=given["node_known"]))},
    "gc": lambda given: {"kept": living(given["ages_seconds"], given["expire_seconds"])},
    "checkpoint_step": lambda given: {
        "count": len(due_checkpoints(given["seconds_since_checkpoint"], given["interval_seconds"], given["max_per_step"]))
    },
    "restore": lambda given: {
        "unknown": unknown_models(given["files"], given["pod_uids"], node_known=given["node_known"])
    },
}


def predictor(given: Json) -> object:
    return _PREDICTORS[given["fn"]](given)
