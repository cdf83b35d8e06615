"""`cpu` and `memory` of a pod become the batch or mid resources of its tier.

In: a pod's `spec` as JSON bytes and its tier. Out: the spec in which every container, init container and the overhead request
the tier's resources: cpu in whole milli-cores (`500m` becomes `500`), memory as it is written. An amount of the tier that was
there already is overwritten; then a missing request becomes the limit, a missing limit stays missing. Specs that
replicas share are translated once. Source: Koordinator's pod webhook; only batch and mid have resources of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

import msgspec

from cotenant.api.objects.pod import REMEMBERED_SPEC_BYTES, REMEMBERED_SPECS
from cotenant.api.splices import Members, member_object, members, raw
from cotenant.model.names import CPU, MEMORY
from cotenant.model.quantities import Scalar, format_decimal, parse_milli
from cotenant.model.tiers import TIER_RESOURCES, PriorityClass
from cotenant_gateway.admission.pods.containers import change_requests

_SCALAR = msgspec.json.Decoder(Scalar)


def translated_spec(spec: bytes, tier: PriorityClass) -> bytes:
    """Return the spec in the tier's resources; the same bytes where nothing is to be changed. Raises QuantityError."""
    if tier not in TIER_RESOURCES:
        return spec
    return _remembered(spec, tier) if len(spec) <= REMEMBERED_SPEC_BYTES else _translated(spec, tier)


@lru_cache(maxsize=REMEMBERED_SPECS)
def _remembered(spec: bytes, tier: PriorityClass) -> bytes:
    return _translated(spec, tier)


def _translated(spec: bytes, tier: PriorityClass) -> bytes:
    top = members(spec)
    changed = change_requests(top, partial(_container, tier=tier), partial(_translate_amounts, tier=tier))
    return bytes(raw(top)) if changed else spec


def _container(container: msgspec.Raw, tier: PriorityClass) -> msgspec.Raw | None:
    inner = members(container)
    resources = member_object(inner, "resources")
    requests, limits = member_object(resources, "requests"), member_object(resources, "limits")
    asked = _translate_amounts(requests, tier)
    limited = _translate_amounts(limits, tier)
    for resource in TIER_RESOURCES[tier].values():
        if resource in limits and resource not in requests:
            requests[resource] = limits[resource]
            asked = True
    if not asked and not limited:
        return None
    if asked:
        resources["requests"] = raw(requests)
    if limited:
        resources["limits"] = raw(limits)
    inner["resources"] = raw(resources)
    return raw(inner)


def _translate_amounts(amounts: Members, tier: PriorityClass) -> bool:
    names = TIER_RESOURCES[tier]
    cpu, memory = amounts.pop(CPU, None), amounts.pop(MEMORY, None)
    if cpu is not None:
        amounts[names[CPU]] = raw(_milli_cores(_SCALAR.decode(cpu)))
    if memory is not None:
        amounts[names[MEMORY]] = memory
    return cpu is not None or memory is not None


def _milli_cores(cpu: Scalar) -> str:
    return format_decimal(parse_milli(cpu))


def tier_amounts(amounts: Mapping[str, Scalar], tier: PriorityClass) -> dict[str, Scalar]:
    """Return a resource list (a RuntimeClass' overhead) in the tier's resources. Raises QuantityError."""
    if tier not in TIER_RESOURCES:
        return dict(amounts)
    names = TIER_RESOURCES[tier]
    return {names.get(name, name): _milli_cores(amount) if name == CPU else amount for name, amount in amounts.items()}
