"""A pod's device requests: `koordinator.sh/gpu` in its parts, the number of cards, and requests that no device can meet.

In: a pod. Out: the pod whose containers ask for gpu-core and gpu-memory-ratio in place of `koordinator.sh/gpu` (100 is a whole
card of both), and for `gpu.shared` where the amounts are several whole cards; field errors of amounts that no device has:

    koordinator.sh/gpu, rdma, fpga      at most 100 or a multiple of it, not 0; gpu not together with gpu.shared
    gpu-memory, gpu-memory-ratio        one of them where gpu-core or gpu.shared is asked for, not both
    gpu.shared                          not 0; gpu-core and gpu-memory-ratio are multiples of it, at most 100 for each card
    one card or several                 without gpu.shared gpu-core and gpu-memory-ratio are at most 100 or a multiple of it

Source: Koordinator 1.7's device mutation and `ValidatePodDeviceResource`, and what its scheduler refuses. Koordinator writes
`gpu.shared: 1` too, which is the default. Slices of other vendors (`npu-core`) have rules of their own and are left
to the scheduler. A live pod whose manifest is applied again is treated as at its creation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from cotenant.api.objects.metadata import Headed
from cotenant.api.objects.pod import Container, Pod
from cotenant.api.splices import EMPTY_OBJECT, Members, member_object, members, raw
from cotenant.api.validation.fields import FieldError, forbidden, invalid, required
from cotenant.model.names import FPGA, GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, NPU_CORE, RDMA
from cotenant.model.quantities import QuantityError, Scalar, parse_value
from cotenant_gateway.admission.pods.containers import change_requests
from cotenant_gateway.admission.review import Mutation, Review

WHOLE = 100
_SCALAR: msgspec.json.Decoder[Scalar] = msgspec.json.Decoder(Scalar)
_MADE_OF = (GPU, GPU_CORE, GPU_MEMORY_RATIO)
_NAMES = (GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, RDMA, FPGA)


def complete_device_spec(review: Review) -> Mutation | None:
    """Rewrite a new pod's GPUs in their parts."""
    if not _asks_for_gpus(review.view):
        return None
    return _completed(review, merged=False)


def _completed(review: Review, *, merged: bool) -> Mutation | None:
    if review.objects.settings.disable_device_resource_spec:
        return None
    top = members(review.document)
    spec = members(top.get("spec", EMPTY_OBJECT))
    if not change_requests(spec, partial(_completed_container, merged=merged), lambda _: False):
        return None
    top["spec"] = raw(spec)
    return Mutation(raw(top), ("GPUs written as gpu-core, gpu-memory-ratio and gpu.shared",))


def complete_device_spec_again(review: Review) -> Mutation | None:
    """The same for a live pod, if the stored pod has nothing left to rewrite. `koordinator.sh/gpu` that a patch adds to the
    stored parts (as `kubectl apply` does) replaces them."""
    old = review.old
    if old is None or old.stored is None or not _asks_for_gpus(review.view):
        return None
    was = Review(review.definition, old.stored.raw, old.pod, old, review.objects)
    return _completed(review, merged=True) if complete_device_spec(was) is None else None


def complete_patched_device_spec(review: Review) -> Mutation | None:
    """The same for a waiting pod that has been patched: `koordinator.sh/gpu` replaces the stored parts."""
    return _completed(review, merged=True) if _asks_for_gpus(review.view) else None


def _asks_for_gpus(pod: Headed) -> bool:
    if not isinstance(pod, Pod):
        return False
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    lists = (amounts for one in containers for amounts in (one.resources.requests, one.resources.limits))
    return any(name in amounts for amounts in lists for name in _MADE_OF)


def _completed_container(container: msgspec.Raw, merged: bool) -> msgspec.Raw | None:
    inner = members(container)
    resources = member_object(inner, "resources")
    changed = False
    for section in ("requests", "limits"):
        amounts = member_object(resources, section)
        if _complete(amounts, merged=merged):
            resources[section] = raw(amounts)
            changed = True
    if not changed:
        return None
    inner["resources"] = raw(resources)
    return raw(inner)


def _complete(amounts: Members, *, merged: bool) -> bool:
    if merged and GPU in amounts:
        for name in (GPU_CORE, GPU_MEMORY_RATIO, GPU_SHARED):
            amounts.pop(name, None)
    if GPU_SHARED in amounts:
        return False
    try:
        asked = {name: parse_value(_SCALAR.decode(amounts[name])) for name in _MADE_OF if name in amounts}
    except (QuantityError, msgspec.MsgspecError):
        # The pod's own rules report the invalid quantity.
        return False
    changed = False
    if asked.get(GPU, 0) > 0 and _whole_or_part(asked[GPU]):
        amount = amounts.pop(GPU)
        amounts[GPU_CORE] = amounts[GPU_MEMORY_RATIO] = amount
        asked = {GPU_CORE: asked[GPU], GPU_MEMORY_RATIO: asked[GPU]}
        changed = True
    cards = _cards(asked)
    if cards > 1 and GPU not in asked:
        amounts[GPU_SHARED] = raw(str(cards))
        changed = True
    return changed


def _cards(asked: Mapping[str, int]) -> int:
    """How many whole cards the amounts are."""
    amount = asked.get(GPU_MEMORY_RATIO) or asked.get(GPU_CORE, 0)
    return amount // WHOLE if amount > WHOLE and amount % WHOLE == 0 else 1


def _whole_or_part(amount: int) -> bool:
    return amount <= WHOLE or amount % WHOLE == 0


def devices_are_possible(review: Review) -> list[FieldError]:
    """Device requests of a new pod that no device can fulfil."""
    pod = review.view
    assert isinstance(pod, Pod)
    found: list[FieldError] = []
    for section, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            found += _container_errors(f"spec.{section}[{index}].resources.requests", container)
    return found


def _container_errors(path: str, container: Container) -> Iterator[FieldError]:
    requests = {**container.resources.limits, **container.resources.requests}
    if not any(name in requests for name in _NAMES):
        return
    try:
        asked = {name: parse_value(requests[name]) for name in _NAMES if name in requests}
    except QuantityError:
        # The pod's own rules report the invalid quantity.
        return
    part = f"must be at most {WHOLE}, a part of one device, or a multiple of it"
    for name in (GPU, RDMA, FPGA):
        if name in asked and not _whole_or_part(asked[name]):
            yield invalid(f"{path}[{name}]", str(requests[name])[:40], part)
    for name in (GPU, GPU_SHARED):
        if asked.get(name, 1) <= 0:
            yield invalid(f"{path}[{name}]", str(requests[name])[:40], "must be greater than 0")
    if GPU in asked:
        others = [name for name in (GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO) if name in asked]
        for name in others:
            yield forbidden(f"{path}[{name}]", f"not together with {GPU}, which is gpu-core and gpu-memory-ratio at once")
        return
    if NPU_CORE not in requests:
        yield from _card_errors(path, asked, part)


def _card_errors(path: str, asked: Mapping[str, int], part: str) -> Iterator[FieldError]:
    memory, ratio = asked.get(GPU_MEMORY, 0), asked.get(GPU_MEMORY_RATIO, 0)
    if memory and ratio:
        yield forbidden(f"{path}[{GPU_MEMORY}]", f"not together with {GPU_MEMORY_RATIO}: both set the amount of memory")
    elif not memory and not ratio and (GPU_CORE in asked or GPU_SHARED in asked):
        yield required(f"{path}[{GPU_MEMORY_RATIO}]", f"or {GPU_MEMORY}: how much memory of the card")
    shared = asked.get(GPU_SHARED)
    for name in (GPU_CORE, GPU_MEMORY_RATIO):
        amount = asked.get(name, 0)
        if shared is None and not _whole_or_part(amount):
            yield invalid(f"{path}[{name}]", amount, part)
        elif shared and shared > 0 and (amount % shared or amount // shared > WHOLE):
            detail = f"must be a multiple of {GPU_SHARED}, which is {shared}, and at most {WHOLE} for each card"
            yield invalid(f"{path}[{name}]", amount, detail)
