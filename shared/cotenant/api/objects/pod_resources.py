"""A pod's requests and limits: integer amounts per resource (cpu in milli-cores, the rest in units).

In: a pod's view. Out: the effective amounts of the whole pod, saturated at the bounds of amounts. The larger of the sum over
containers (with restartable init containers) and each init container on top of the restartable ones before it, plus the
overhead. Computed once for all pods that share the decoded spec.

Source: Kubernetes' resource requirements of pods (sidecar containers included).
"""

from __future__ import annotations

from collections.abc import Callable

from cotenant.api.objects.pod import Container, Pod, PodSpec
from cotenant.model.bounds import saturated
from cotenant.model.by_identity import by_identity
from cotenant.model.quantities import resource_amount


def container_requests(container: Container) -> dict[str, int]:
    """Return integer requests; a limit without a request counts as the request, as Kubernetes defaults it."""
    merged = {**container.resources.limits, **container.resources.requests}
    return {name: resource_amount(name, quantity) for name, quantity in merged.items()}


def pod_requests(pod: Pod) -> dict[str, int]:
    """Return the pod's effective request per resource (cpu in milli-cores, the rest in units), overhead included."""
    return dict(_requests(pod.spec))


@by_identity
def _requests(spec: PodSpec) -> dict[str, int]:
    total = _effective(spec, container_requests)
    for name, quantity in spec.overhead.items():
        total[name] = total.get(name, 0) + resource_amount(name, quantity)
    return {name: saturated(amount) for name, amount in total.items()}


def pod_limits(pod: Pod) -> dict[str, int]:
    """Return the pod's effective limits, by the rule of its requests; only of resources that a container limits."""
    total = _effective(pod.spec, _container_limits)
    for name in total:
        total[name] = saturated(total[name] + resource_amount(name, pod.spec.overhead.get(name, 0)))
    return total


def _container_limits(container: Container) -> dict[str, int]:
    return {name: resource_amount(name, quantity) for name, quantity in container.resources.limits.items()}


def _effective(spec: PodSpec, of: Callable[[Container], dict[str, int]]) -> dict[str, int]:
    """Return what the containers need together.

    Kubernetes' rule: the larger of the sum over containers (with restartable init containers) and each init container
    on top of the restartable ones before it.
    """
    total: dict[str, int] = {}
    for container in spec.containers:
        for name, amount in of(container).items():
            total[name] = total.get(name, 0) + amount
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        amounts = of(container)
        if container.restart_policy == "Always":
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount
                sidecars[name] = sidecars.get(name, 0) + amount
            amounts = sidecars
        else:
            amounts = {name: amount + sidecars.get(name, 0) for name, amount in amounts.items()}
        for name, amount in amounts.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    return total
