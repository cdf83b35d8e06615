"""Taints and tolerations: whether a taint keeps a pod off a node.

In: a toleration, a taint. A toleration with an empty key and Exists covers everything; an empty effect means every effect;
Equal (the default operator) needs a key and compares the value. Source: Kubernetes taints and tolerations.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.api.objects.node import Taint
from cotenant.api.objects.pod import Pod, Toleration
from cotenant.domain.qos import QoSClass, qos_default
from cotenant.events.node.conditions import TAINT_MEMORY_PRESSURE

HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep a pod off a node; PreferNoSchedule only counts in scores."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether one toleration covers one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Return whether some toleration covers the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


_UNDER_MEMORY_PRESSURE = Toleration(key=TAINT_MEMORY_PRESSURE, operator="Exists", effect="NoSchedule")
_BEST_EFFORT = QoSClass.BE


def effective_tolerations(pod: Pod) -> tuple[Toleration, ...]:
    """Return a pod's tolerations with the implicit ones: pods that are not best-effort tolerate memory
    pressure, as Kubernetes' admission adds it."""
    own = tuple(pod.spec.tolerations)
    return own if qos_default(pod) is _BEST_EFFORT else (*own, _UNDER_MEMORY_PRESSURE)


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first hard taint that is not tolerated."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not tolerated(taint, tolerations):
            return taint
    return None
