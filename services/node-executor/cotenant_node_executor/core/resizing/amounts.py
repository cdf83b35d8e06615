"""What a resize changes, and what of it can be written now.

In: the resources that a pod has and those that it asks for, the memory that its containers use. Out: the amounts that differ,
the resources to write now with what waits, and the containers that their policy restarts.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.api.validation.resize_policies import RESTART
from cotenant.domain.resizing import Stated, resizable_containers
from cotenant.events.resizes import ContainerResources
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY
from cotenant.model.quantities import resource_amount
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.runtime.interface import ContainerState

CPU_NAMES = (CPU, BATCH_CPU, MID_CPU)
MEMORY_NAMES = (MEMORY, BATCH_MEMORY, MID_MEMORY)
WAITS = "memory limit"
"""How the message of a resize begins that waits for memory."""


def used_memory(seen: Observation, pod: Pod) -> Mapping[str, int]:
    """The memory of a pod's containers, in bytes, where it was measured; that of an only container is its pod's."""
    sample = seen.snapshot.pods.get(pod.metadata.uid) if seen.snapshot is not None else None
    if sample is None:
        return {}
    names = [each.name for each in resizable_containers(pod.spec)]
    if not sample.containers and len(names) == 1 and sample.usage.memory_bytes is not None:
        return {names[0]: sample.usage.memory_bytes}
    return {each.name: each.usage.memory_bytes for each in sample.containers if each.usage.memory_bytes is not None}


def spared(wanted: Stated, applied: Stated, used: Mapping[str, int]) -> tuple[Stated, str]:
    """Return the resources to write now, and what waits: a memory limit below what its container uses stays as it is,
    and so does the request."""
    before = {each.name: each for each in applied}
    usable: list[ContainerResources] = []
    waits: list[str] = []
    for each in wanted:
        old, in_use = before.get(each.name), used.get(each.name)
        kept = {
            name: old.limits[name]
            for name in MEMORY_NAMES
            if old is not None
            and in_use is not None
            and name in each.limits
            and name in old.limits
            and resource_amount(name, each.limits[name]) < min(resource_amount(name, old.limits[name]), in_use)
        }
        if kept and old is not None:
            asked = {name: old.requests[name] for name in kept if name in old.requests}
            usable.append(replace(each, requests={**each.requests, **asked}, limits={**each.limits, **kept}))
        else:
            usable.append(each)
        waits += [f"{WAITS} {each.limits[name]} of container {each.name} is below the {in_use} bytes in use" for name in kept]
    return tuple(usable), "; ".join(waits)


def changed(has: Stated, wants: Stated) -> list[tuple[str, str]]:
    """The containers and resources whose amounts differ."""
    before = {each.name: each for each in has}
    found: list[tuple[str, str]] = []
    for each in wants:
        old = before.get(each.name, ContainerResources(name=each.name))
        for ours, theirs in ((each.requests, old.requests), (each.limits, old.limits)):
            found += [(each.name, name) for name in (*CPU_NAMES, *MEMORY_NAMES) if _amount(name, ours) != _amount(name, theirs)]
    return found


def _amount(name: str, amounts: Mapping[str, str]) -> int | None:
    return resource_amount(name, amounts[name]) if name in amounts else None


def to_restart(pod: Pod, changed: list[tuple[str, str]], states: Mapping[str, ContainerState]) -> dict[str, int]:
    """The running containers that their policy restarts for a change, with their attempts. One that does not run gets its new
    resources when it is started."""
    found: dict[str, int] = {}
    for container in pod.spec.containers:
        state = states.get(container.name)
        if state is None or state.exited:
            continue
        for policy in container.resize_policy:
            names = CPU_NAMES if policy.resource_name == CPU else MEMORY_NAMES
            if policy.restart_policy == RESTART and any((container.name, name) in changed for name in names):
                found[container.name] = state.attempt
    return found


def until_ended(wanted: Stated, applied: Stated, states: Mapping[str, ContainerState], restarted: Set[str]) -> Stated:
    """Return the resources to write now: a container that is restarted keeps its own until it has ended."""
    before = {each.name: each for each in applied}
    return tuple([
        before.get(each.name, each) if each.name in restarted and not states[each.name].exited else each for each in wanted
    ])
