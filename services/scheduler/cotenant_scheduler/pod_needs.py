"""What a pod asks of a node beside its requests: limits, requests with small amounts filled in, host ports.

In: the typed pod. Out: integers per resource (cpu in milli-cores, others in units) and sorted ports. Source:
Kubernetes (effective limits and non-zero requests of a pod, host ports).
"""

from __future__ import annotations

from cotenant.names import CPU, MEMORY
from cotenant.objects.pod import Pod, container_requests
from cotenant.quantities import resource_amount

NONZERO_CPU_MILLI = 100
NONZERO_MEMORY_BYTES = 200 << 20
"""What a container without a request counts as when nodes are scored by room (Kubernetes)."""

HostPort = tuple[str, int, str]
"""Protocol, port, address; an empty address or 0.0.0.0 means all."""


def pod_limits(pod: Pod) -> dict[str, int]:
    """Return the pod's effective limits, by the rule of its requests (Kubernetes); only of containers that have one."""
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        for name, quantity in container.resources.limits.items():
            total[name] = total.get(name, 0) + resource_amount(name, quantity)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers:
        limits = {name: resource_amount(name, quantity) for name, quantity in container.resources.limits.items()}
        if container.restart_policy == "Always":
            for name, amount in limits.items():
                total[name] = total.get(name, 0) + amount
                sidecars[name] = sidecars.get(name, 0) + amount
            limits = sidecars
        else:
            limits = {name: amount + sidecars.get(name, 0) for name, amount in limits.items()}
        for name, amount in limits.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    for name, quantity in pod.spec.overhead.items():
        if name in total:
            total[name] += resource_amount(name, quantity)
    return total


def nonzero_requests(pod: Pod) -> tuple[int, int]:
    """Return cpu and memory of the pod with Kubernetes' small amounts for containers that ask for none."""
    defaults = {CPU: NONZERO_CPU_MILLI, MEMORY: NONZERO_MEMORY_BYTES}
    result = []
    for name, default in defaults.items():
        amounts = [container_requests(container).get(name, default) for container in pod.spec.containers]
        first = [container_requests(container).get(name, default) for container in pod.spec.init_containers]
        overhead = resource_amount(name, pod.spec.overhead.get(name, 0))
        result.append(max(sum(amounts), *first, 0) + overhead)
    return result[0], result[1]


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the ports that the pod takes on its node, sorted; with the host's network every port is one."""
    ports: set[HostPort] = set()
    for container in pod.spec.containers:
        for port in container.ports:
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number > 0:
                ports.add((port.protocol or "TCP", number, port.host_ip or "0.0.0.0"))
    return tuple(sorted(ports))
