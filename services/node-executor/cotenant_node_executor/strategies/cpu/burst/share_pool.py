"""The load of the share pool: the CPUs that are exclusive to no LSE or LSR pod.

In: processors, CPU requests and usage of pods by their QoS label, usage of the node (milli-CPU). Out: the pool's state.

    total = processors - requests of LSE and LSR pods;  used = node - usage of LSE, LSR and BE pods
    ratio = used / total (1 without a pool);  overload from the threshold on, cooling from 90 % of it, idle below

Usage of the system and of pods without a label stays in the pool on purpose. Source: CPU burst, koordlet rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from cotenant.domain.qos import QoSClass

COOLING_PART = 0.9
_ALONE = frozenset((QoSClass.LSE, QoSClass.LSR))
_OUTSIDE = _ALONE | {QoSClass.BE}


class PoolState(StrEnum):
    """`unknown`: without a figure of the node."""

    IDLE = "idle"
    COOLING = "cooling"
    OVERLOAD = "overload"
    UNKNOWN = "unknown"


def pool_total_milli(processors: int, pods: Iterable[tuple[str, int]]) -> int:
    """The pool's size from (QoS label, CPU request) of every pod."""
    return processors * 1000 - sum(request for qos, request in pods if qos in _ALONE)


def pool_used_milli(node_milli: float, pods: Iterable[tuple[str, str]], used: Mapping[str, float]) -> float:
    """The usage of the pool's CPUs, from (uid, QoS label) of every pod; a pod without a sample counts as 0."""
    return node_milli - sum(used[uid] for uid, qos in pods if qos in _OUTSIDE and uid in used)


def pool_state(threshold_percent: int, total_milli: int | None, used_milli: float | None) -> PoolState:
    """The state; None stands for a missing figure."""
    if total_milli is None or used_milli is None:
        return PoolState.UNKNOWN
    ratio = used_milli / total_milli if total_milli > 0 else 1.0
    threshold = threshold_percent / 100
    if ratio >= threshold:
        return PoolState.OVERLOAD
    return PoolState.COOLING if ratio >= COOLING_PART * threshold else PoolState.IDLE
