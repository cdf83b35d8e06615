"""Resizing a pod in place: which resources change, what is counted meanwhile, and the manifest with other resources.

In: a pod's manifest, resources by container, the placement and the node's report. Out: the resources that a resize can change;
what the placement says of a resize; the requests that count; the manifest with the resources that are counted or admitted.

A resize is asked for in the pod's object, admitted or refused by the node's executor, and counted by the scheduler: for each
container and resource the larger of what is asked for and what the node may have admitted, until the node reports that the
resize is in force; what is admitted alone once the node has refused it for good. Source: Kubernetes, requests of a pod with
in-place resize (the larger of spec and allocated resources; an infeasible resize does not count).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cotenant.api.objects.pod import Container, Pod, PodSpec, Resources, decode_pod
from cotenant.api.splices import elements, is_array, member_object, members, raw
from cotenant.events.placements import Placement
from cotenant.events.resizes import ContainerResources, PlacementResize, ResizeState, ResizeStatus
from cotenant.model.by_identity import by_identity
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY
from cotenant.model.quantities import resource_amount

RESIZABLE = (CPU, MEMORY, BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)
"""The resources that a resize may change: CPU and memory, also those of the batch and mid tiers."""

Stated = tuple[ContainerResources, ...]
"""By container, in the order of the manifest."""


def resizable_containers(spec: PodSpec) -> list[Container]:
    """Return the containers whose resources may change: all but init containers that end before the others start."""
    return [*[each for each in spec.init_containers if each.restart_policy == "Always"], *spec.containers]


@by_identity
def stated(spec: PodSpec) -> Stated:
    """Return what a manifest asks for."""
    return tuple(
        ContainerResources(
            name=each.name,
            requests={name: str(each.resources.requests[name]) for name in RESIZABLE if name in each.resources.requests},
            limits={name: str(each.resources.limits[name]) for name in RESIZABLE if name in each.resources.limits},
        )
        for each in resizable_containers(spec)
    )


def same_amounts(one: Stated, other: Stated) -> bool:
    """Whether two are equal but for the spelling of quantities."""
    return one == other or [_amounts(each) for each in one] == [_amounts(each) for each in other]


def _amounts(of: ContainerResources) -> tuple[str, dict[str, int], dict[str, int]]:
    requests = {name: resource_amount(name, quantity) for name, quantity in of.requests.items()}
    limits = {name: resource_amount(name, quantity) for name, quantity in of.limits.items()}
    return of.name, requests, limits


def larger(one: Stated, other: Stated) -> Stated:
    """Return for each container of the first, and each resource, the larger request of both and the larger limit (none, where
    one of them has none). A limit without a request counts as the request."""
    others = {each.name: each for each in other}
    return tuple([_larger(each, others[each.name]) if each.name in others else each for each in one])


def _larger(one: ContainerResources, other: ContainerResources) -> ContainerResources:
    ours, theirs = {**one.limits, **one.requests}, {**other.limits, **other.requests}
    return ContainerResources(
        name=one.name,
        requests={name: _most(name, ours, theirs) for name in RESIZABLE if name in ours or name in theirs},
        limits={name: _most(name, one.limits, other.limits) for name in one.limits if name in other.limits},
    )


def _most(name: str, *of: Mapping[str, str]) -> str:
    return max((each[name] for each in of if name in each), key=lambda quantity: resource_amount(name, quantity))


# -- manifests -----------------------------------------------------------------------------------------------------------


def with_resources(document: msgspec.Raw, resources: Iterable[ContainerResources]) -> msgspec.Raw:
    """Return the manifest with these resources instead of its own; all else stays byte for byte. Raises DocumentError."""
    wanted = {each.name: each for each in resources}
    top = members(document)
    spec = member_object(top, "spec")
    for section in ("initContainers", "containers"):
        if section in spec and is_array(spec[section]):
            spec[section] = raw([_with_resources(each, wanted) for each in elements(spec[section])])
    top["spec"] = raw(spec)
    return raw(top)


_NAME = msgspec.json.Decoder(str)


def _with_resources(container: msgspec.Raw, wanted: Mapping[str, ContainerResources]) -> msgspec.Raw:
    inner = members(container)
    name = _NAME.decode(inner["name"]) if "name" in inner else ""
    if name not in wanted:
        return container
    resources = member_object(inner, "resources")
    for section, given in (("requests", wanted[name].requests), ("limits", wanted[name].limits)):
        amounts = {key: value for key, value in member_object(resources, section).items() if key not in RESIZABLE}
        amounts.update((key, raw(quantity)) for key, quantity in given.items())
        if amounts:
            resources[section] = raw(amounts)
        else:
            resources.pop(section, None)
    inner["resources"] = raw(resources)
    return raw(inner)


def pod_with_resources(pod: Pod, resources: Iterable[ContainerResources]) -> Pod:
    """As `with_resources`, for the typed view."""
    wanted = {each.name: each for each in resources}

    def changed(container: Container) -> Container:
        given = wanted.get(container.name)
        if given is None:
            return container
        own = container.resources
        kept = Resources(
            requests={**{k: v for k, v in own.requests.items() if k not in RESIZABLE}, **given.requests},
            limits={**{k: v for k, v in own.limits.items() if k not in RESIZABLE}, **given.limits},
        )
        return msgspec.structs.replace(container, resources=kept)

    spec = pod.spec
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec,
            containers=[changed(each) for each in spec.containers],
            init_containers=[changed(each) for each in spec.init_containers],
        ),
    )


def counted_document(pod: msgspec.Raw, resize: PlacementResize | None) -> msgspec.Raw:
    """Return the manifest with the resources that are counted for a placement. Raises DocumentError."""
    return pod if resize is None else with_resources(pod, resize.counted)


def counted_pod(placement: Placement) -> Pod:
    """As `counted_document`, decoded. Raises msgspec.DecodeError."""
    pod = decode_pod(placement.pod)
    return pod if placement.resize is None else pod_with_resources(pod, placement.resize.counted)


# -- what a placed pod counts with ------------------------------------------------------------------------------------------


def counts_otherwise(resized: bool, placed_from: int, object_sequence: int) -> bool:
    """Whether a placed pod counts with the requests of its placement instead of its object's: while it is resized in place, and
    until a placement follows a changed object. `placed_from`: the object's sequence by the placement, 0 where it says none."""
    return resized or 0 < placed_from < object_sequence


def counted_requests(placement: Placement, asked: Mapping[str, int], object_sequence: int = 0) -> Mapping[str, int]:
    """Return the requests that count for a placed pod, per resource (cpu in milli-cores, the rest in units): those that its
    manifest asks for, or those of its placement (`counts_otherwise`). `object_sequence`: that of the object which `asked` was
    read from, 0 if it is the placement's own manifest."""
    resized = placement.resize is not None
    return placement.requests if counts_otherwise(resized, placement.object_sequence, object_sequence) else asked


# -- what a placement says of a resize -----------------------------------------------------------------------------------


def next_resize(
    before: PlacementResize | None, had: Stated, asked: Stated, sequence: int, report: ResizeStatus | None
) -> PlacementResize | None:
    """Return what the placement says next. `before`: what it says; `had`: the resources in its manifest; `asked`: those in the
    object stored at `sequence`; `report`: the node's last one about this pod. None: nothing is being resized."""
    admitted = counted = had
    if before is not None:
        admitted, counted = before.admitted, before.counted
        if report is not None and report.sequence == before.sequence:
            admitted = report.admitted or admitted
            in_force = larger(admitted, report.applied) if report.applied else admitted
            if report.state is not ResizeState.IN_PROGRESS:
                counted = in_force
            if report.state is ResizeState.DEFERRED:
                counted = larger(had, in_force)
    if not same_amounts(had, asked):
        return PlacementResize(sequence=sequence, admitted=admitted, counted=larger(asked, counted))
    if before is None or (
        report is not None and report.sequence == before.sequence and report.state is ResizeState.DONE
    ):
        return None
    return PlacementResize(sequence=before.sequence, admitted=admitted, counted=counted)
