"""The reclaimable part of prod pods' requests: the pod predictor, the priority predictor, and the smaller of both.

In: the node's pods, the predicted peaks of pods and tiers, its allocatable. Out: the reclaimable amounts, with the sums that
they came from. Peak: p95 of CPU, p98 of memory, times the safety margin, truncated. Only pods of tier prod, or of none, count;
those that have ended do not.

    pod predictor       sum over pods of max(request - peak, 0); 0 for a pod as young as the cold start
    priority predictor  max(sum of requests, cold pods too - (peak of system + tier prod + tier none) x margin, 0)
    both                at most max(allocatable - sum of their peaks, 0), so that an over-committed node offers nothing twice
    result              the smaller of the two, for CPU and memory separately
    node's peak         the larger of the predicted peak of pods (with requests of those that have none) and that of tiers

Where the forecast by time of day is in force for a resource, it stands for the peak of the system and tiers prod and none:

    time of day         max(requests of the pods that the pod predictor counts - forecast, 0), at most
                        max(allocatable - forecast, 0); it is the result, and the forecast is the node's peak

A pod without a prediction, or a duplicate one, is an error of that pod: it takes part in neither predictor. A tier without
a prediction, or an unknown allocatable, is an error of the whole. Source: Koordinator pkg/koordlet/prediction, the newest rule.
"""

from collections.abc import Iterable, Mapping

import msgspec

from cotenant.events.node.metrics import Usage
from cotenant.model.bounds import saturated


def peak_of(p95: Usage, p98: Usage) -> Usage:
    """The percentiles that count as the peak: p95 of CPU, p98 of memory."""
    return Usage(cpu_milli=p95.cpu_milli, memory_bytes=p98.memory_bytes)


class PodRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of the node. `prod`: of tier prod or none; `ended`: shall end, or has."""

    uid: str
    prod: bool
    age_seconds: float
    request: Usage
    ended: bool = False


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one predictor. `peak`: with the margin; `cap`: the rest of the node's allocatable."""

    request: Usage
    peak: Usage
    cap: Usage
    reclaimable: Usage


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The result; None for figures that could not be computed, with the reason in `error`. Uids are in the pods' order."""

    pod: Terms | None = None
    priority: Terms | None = None
    reclaimable: Usage | None = None
    pod_peak: Usage = Usage()
    node_peak: Usage | None = None
    season: Terms | None = None
    cold: tuple[str, ...] = ()
    unpredicted: tuple[str, ...] = ()
    error: str = ""


def scaled(usage: Usage, margin_percent: int) -> Usage:
    """With the safety margin, truncated."""
    ratio = (100 + margin_percent) / 100
    return Usage(cpu_milli=saturated(int(usage.cpu_milli * ratio)), memory_bytes=saturated(int(usage.memory_bytes * ratio)))


def total(usages: Iterable[Usage]) -> Usage:
    """The sum, within the bounds of amounts."""
    cpu, memory = 0, 0
    for usage in usages:
        cpu, memory = cpu + usage.cpu_milli, memory + usage.memory_bytes
    return Usage(cpu_milli=saturated(cpu), memory_bytes=saturated(memory))


def less(one: Usage, other: Usage) -> Usage:
    """The difference, at least 0 for each resource."""
    return Usage(
        cpu_milli=max(one.cpu_milli - other.cpu_milli, 0), memory_bytes=max(one.memory_bytes - other.memory_bytes, 0)
    )


def smaller(one: Usage, other: Usage) -> Usage:
    """The minimum for each resource."""
    return Usage(
        cpu_milli=min(one.cpu_milli, other.cpu_milli), memory_bytes=min(one.memory_bytes, other.memory_bytes)
    )


def larger(one: Usage, other: Usage) -> Usage:
    """The maximum for each resource."""
    return Usage(
        cpu_milli=max(one.cpu_milli, other.cpu_milli), memory_bytes=max(one.memory_bytes, other.memory_bytes)
    )


def _terms(request: Usage, peak: Usage, lent: Usage, allocatable: Usage) -> Terms:
    cap = less(allocatable, peak)
    return Terms(request=request, peak=peak, cap=cap, reclaimable=smaller(lent, cap))


def predict(
    pods: Iterable[PodRequest],
    peaks: Mapping[str, Usage],
    tiers: Mapping[str, Usage | None],
    *,
    allocatable: Usage | None,
    cold_start_seconds: float,
    margin_percent: int,
) -> Prediction:
    """The reclaimable part of the requests of a node's pods. `peaks`: of pods by uid; `tiers`: of the system and the tiers that
    count, None for a missing one."""
    seen: set[str] = set()
    cold: list[str] = []
    unpredicted: list[str] = []
    requests: list[Usage] = []
    own_requests: list[Usage] = []
    own_peaks: list[Usage] = []
    lent: list[Usage] = []
    assumed: list[Usage] = []
    for pod in pods:
        if not pod.prod:
            continue
        if pod.uid in seen:
            unpredicted.append(pod.uid)
            continue
        seen.add(pod.uid)
        if pod.ended:
            continue
        if pod.age_seconds <= cold_start_seconds:
            cold.append(pod.uid)
            assumed.append(pod.request)
            requests.append(pod.request)
            continue
        own = peaks.get(pod.uid)
        if own is None:
            unpredicted.append(pod.uid)
            assumed.append(pod.request)
            continue
        peak = scaled(own, margin_percent)
        requests.append(pod.request)
        own_requests.append(pod.request)
        own_peaks.append(peak)
        lent.append(less(pod.request, peak))
    pod_peak = total([*own_peaks, *assumed])
    found = Prediction(pod_peak=pod_peak, cold=tuple(cold), unpredicted=tuple(unpredicted))
    if missing := [name for name, peak in tiers.items() if peak is None]:
        return msgspec.structs.replace(found, error=f"no prediction of {', '.join(missing)} yet")
    tier_peak = scaled(total([peak for peak in tiers.values() if peak is not None]), margin_percent)
    found = msgspec.structs.replace(found, node_peak=larger(pod_peak, tier_peak))
    if allocatable is None:
        return msgspec.structs.replace(found, error="the node's allocatable CPU and memory are unknown")
    of_pods = _terms(total(own_requests), total(own_peaks), total(lent), allocatable)
    asked = total(requests)
    of_tiers = _terms(asked, tier_peak, less(asked, tier_peak), allocatable)
    return msgspec.structs.replace(
        found, pod=of_pods, priority=of_tiers, reclaimable=smaller(of_pods.reclaimable, of_tiers.reclaimable)
    )


def with_forecast(
    found: Prediction, cpu_milli: int | None, memory_bytes: int | None, allocatable: Usage | None
) -> Prediction:
    """The result with the forecasts by time of day that are in force; None for a resource for which it is not."""
    if found.pod is None or found.reclaimable is None or allocatable is None:
        return found

    def in_force(season: Usage, histogram: Usage) -> Usage:
        return Usage(
            cpu_milli=histogram.cpu_milli if cpu_milli is None else season.cpu_milli,
            memory_bytes=histogram.memory_bytes if memory_bytes is None else season.memory_bytes,
        )

    nothing = Usage()
    request, can_give = in_force(found.pod.request, nothing), in_force(allocatable, nothing)
    peak = Usage(cpu_milli=saturated(cpu_milli or 0), memory_bytes=saturated(memory_bytes or 0))
    terms = _terms(request, peak, less(request, peak), can_give)
    return msgspec.structs.replace(
        found,
        season=terms,
        reclaimable=in_force(terms.reclaimable, found.reclaimable),
        node_peak=in_force(peak, found.node_peak or nothing),
    )
