"""Usage scores of nodes and pods, the sort keys.

    percent floor[r] = floor(usage * 100 / allocatable), 0 where nothing is allocatable
    most_requested(u, c) = floor(min(u, c) * 1000 / c), 0 where c = 0
    usage_score = (sum over r in usage of w_r * most_requested(u_r, c_r)) div (sum of w_r over r in usage)
    excess_score: only over-used resources weigh; ex = usage - high of the node, ratio = pod usage / ex (0 where ex = 0),
        s = ratio if ratio < 1 else 1 + 1/ratio; score = sum(w * s) / sum(w)
        so the pod whose usage just covers the excess has the best score

Units: cpu in milli-cores, the rest plain. A resource without a weight has weight 0; weights that sum to 0 give 0.

Source: koord-descheduler sorter (resource usage scorer) and LowNodeLoad's pod order.
"""

from __future__ import annotations

from collections.abc import Mapping

_FULL_SCORE = 1000


def percent_floor(usage: Mapping[str, int], allocatable: Mapping[str, int]) -> dict[str, int]:
    """Return whole percents of allocatable per used resource."""
    return {
        name: amount * 100 // allocatable[name] if allocatable.get(name, 0) > 0 else 0
        for name, amount in usage.items()
    }


def most_requested(usage: int, capacity: int) -> int:
    """Return the score of one resource, 0..1000."""
    return min(usage, capacity) * _FULL_SCORE // capacity if capacity else 0


def usage_score(usage: Mapping[str, int], capacity: Mapping[str, int], weights: Mapping[str, int]) -> int:
    """Return the weighted integer score 0..1000 of a node or pod."""
    weight_sum = sum(weights.get(name, 0) for name in usage)
    if weight_sum == 0:
        return 0
    scored = sum(
        weights.get(name, 0) * most_requested(amount, capacity.get(name, 0)) for name, amount in usage.items()
    )
    return scored // weight_sum


def excess_score(pod_usage: Mapping[str, int], excess: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """Return how well the pod's usage covers the node's excess; `excess` holds over-used resources only."""
    scored = 0.0
    weight_sum = 0
    for name in sorted(pod_usage):
        if name not in excess:
            continue
        weight = weights.get(name, 0)
        ratio = pod_usage[name] / excess[name] if excess[name] else 0.0
        scored += weight * (ratio if ratio < 1 else 1 + 1 / ratio)
        weight_sum += weight
    return scored / weight_sum if weight_sum else 0.0
