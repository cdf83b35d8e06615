"""A pod's needs beside its requests and limits: requests with small amounts filled in, host ports, images.

In: the typed pod. Out: integers per resource (cpu in milli-cores, others in units) and sorted ports. Source:
Kubernetes (non-zero requests of a pod, host ports).
"""

from __future__ import annotations

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import container_requests
from cotenant.model.bounds import saturated
from cotenant.model.names import CPU, MEMORY
from cotenant.model.quantities import resource_amount

NONZERO_CPU_MILLI = 100
NONZERO_MEMORY_BYTES = 200 << 20
"""What a container without a request counts as when nodes are scored by room (Kubernetes)."""

HostPort = tuple[str, int, str]
"""Protocol, port, address; an empty address or 0.0.0.0 means all."""


def nonzero_requests(pod: Pod) -> tuple[int, int]:
    """Return cpu and memory of the pod with Kubernetes' small amounts for containers that ask for none."""
    defaults = {CPU: NONZERO_CPU_MILLI, MEMORY: NONZERO_MEMORY_BYTES}
    result = []
    for name, default in defaults.items():
        amounts = [container_requests(container).get(name, default) for container in pod.spec.containers]
        first = [container_requests(container).get(name, default) for container in pod.spec.init_containers]
        overhead = resource_amount(name, pod.spec.overhead.get(name, 0))
        result.append(saturated(max(sum(amounts), *first, 0) + overhead))
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


def images(pod: Pod) -> tuple[str, ...]:
    """Return the images of all containers, sorted, one a container."""
    return tuple(sorted(image_name(c.image) for c in (*pod.spec.init_containers, *pod.spec.containers) if c.image))


def image_name(text: str) -> str:
    """Return an image's name with its tag, which is `latest` where there is none."""
    return text if text.rfind(":") > text.rfind("/") else f"{text}:latest"
