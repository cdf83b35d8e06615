"""Whether a pod fits its quota now: the check that the scheduler makes before it places the pod.

In: the pod's request and its quota with the quota's ancestors, each with runtime, max, min and used. Out: None, or a
`QuotaRefusal` that names the quota, the ancestor that is too small (if it is not the quota itself), the first dimension,
what would be needed in that dimension and its limit. The rule:

1. used + request must fit the limit of the quota in every dimension that both have (not only those that the pod asks
   for: over-use anywhere blocks). The limit is the runtime; with `runtime_limits` False it is max.
2. a non-preemptible pod: non-preemptible used + request must fit min (unscaled; a dimension that min lacks is
   unlimited).
3. with `check_ancestors`: used + request must fit each ancestor's limit in the dimensions of the request, nearest
   first.

The request is first reduced to the dimensions of the quota's max: a quota does not limit a resource that it does
not list. Source: Koordinator ElasticQuota PreFilter, with its texts. A dimension missing in a limit is not limited;
the runtime that the quota-tree service publishes always has every dimension of max.
"""

from collections.abc import Sequence

import msgspec

from cotenant.model.amounts import Amounts, exceeding, fits, fits_in_its_own, format_amounts, masked, plus


class QuotaLevel(msgspec.Struct, frozen=True, kw_only=True):
    """One quota on the way from a pod's quota to the root, as the check reads it."""

    name: str
    max: dict[str, int] = {}
    min: dict[str, int] = {}
    runtime: dict[str, int] = {}
    used: Amounts = {}
    non_preemptible_used: Amounts = {}


class QuotaRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod does not fit. Amounts: cpu in milli-cores, everything else in base units."""

    quota: str
    ancestor: str = ""
    """The ancestor that is too small; empty if it is the pod's own quota."""
    dimension: str
    """The first exceeding resource by name; `dimensions` has all."""
    dimensions: tuple[str, ...]
    need: int
    """used + request in `dimension`."""
    limit: int
    limited_by: str
    """`runtime`, `max`, or `min` (non-preemptible pods)."""
    message: str


def admit(
    request: Amounts,
    chain: Sequence[QuotaLevel],
    *,
    preemptible: bool = True,
    runtime_limits: bool = True,
    check_ancestors: bool = False,
) -> QuotaRefusal | None:
    """Check a pod against `chain`: its own quota first, then the ancestors nearest first, without the root."""
    if not chain:
        return None
    own = chain[0]
    if not request.keys() <= own.max.keys():
        request = masked(request, own.max)
    return (
        _own_refusal(request, own, runtime_limits)
        or (None if preemptible else _non_preemptible_refusal(request, own))
        or (_ancestor_refusal(request, chain, runtime_limits) if check_ancestors else None)
    )


def _limit(level: QuotaLevel, runtime_limits: bool) -> Amounts:
    return level.runtime if runtime_limits else level.max


def _own_refusal(request: Amounts, own: QuotaLevel, runtime_limits: bool) -> QuotaRefusal | None:
    if fits(own.used, request, _limit(own, runtime_limits)):  # the common case: no refusal
        return None
    return _level_refusal(request, own, own, plus(own.used, request), (), runtime_limits)


def _ancestor_refusal(request: Amounts, chain: Sequence[QuotaLevel], runtime_limits: bool) -> QuotaRefusal | None:
    for depth, ancestor in enumerate(chain[1:], 1):
        if not fits_in_its_own(ancestor.used, request, _limit(ancestor, runtime_limits)):
            needed = {resource: ancestor.used.get(resource, 0) + amount for resource, amount in request.items()}
            path = [level.name for level in reversed(chain[: depth + 1])]
            return _level_refusal(request, chain[0], ancestor, needed, path, runtime_limits)
    return None


def _level_refusal(
    request: Amounts, own: QuotaLevel, level: QuotaLevel, needed: Amounts, path: Sequence[str], runtime_limits: bool
) -> QuotaRefusal:
    """Return why `needed` exceeds the level's limit."""
    limit = _limit(level, runtime_limits)
    named = f"quotaNameTopo: [{' '.join(path)}]" if path else f"quotaName: {own.name}"
    text = (
        f"Insufficient quotas, {named}, runtime: {format_amounts(limit)}, used: {format_amounts(level.used)}, "
        f"pod's request: {format_amounts(request)}"
    )
    ancestor = level.name if path else ""
    return _refusal(own, ancestor, needed, limit, "runtime" if runtime_limits else "max", text)


def _non_preemptible_refusal(request: Amounts, own: QuotaLevel) -> QuotaRefusal | None:
    if fits(own.non_preemptible_used, request, own.min):
        return None
    needed = plus(own.non_preemptible_used, request)
    text = (
        f"Insufficient non-preemptible quotas, quotaName: {own.name}, min: {format_amounts(own.min)}, "
        f"nonPreemptibleUsed: {format_amounts(own.non_preemptible_used)}, pod's request: {format_amounts(request)}"
    )
    return _refusal(own, "", needed, own.min, "min", text)


def _refusal(own: QuotaLevel, ancestor: str, needed: Amounts, limit: Amounts, limited_by: str, text: str) -> QuotaRefusal:
    dimensions = exceeding(needed, limit)
    return QuotaRefusal(
        quota=own.name,
        ancestor=ancestor,
        dimension=dimensions[0],
        dimensions=dimensions,
        need=needed[dimensions[0]],
        limit=limit[dimensions[0]],
        limited_by=limited_by,
        message=f"{text}, exceedDimensions: [{' '.join(dimensions)}]",
    )
