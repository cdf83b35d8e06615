"""The reason for a quota's runtime, in words: one line per resource.

In: the last events of the quota, of its parent and of its siblings. Out: per resource what the sharing below the parent did:
the min as scaled, whether the quota competed, with which weight, and what it got. The rule that the words follow is that of
quota-tree (docs/quota-tree.md): floor, request or competition by weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cotenant.domain.quota.names import BUILT_IN_QUOTAS, ROOT
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.quantities import format_amount


def runtime_reasons(quota: QuotaRuntime, parent: QuotaRuntime | None, siblings: Sequence[QuotaRuntime]) -> Iterator[str]:
    """Yield a line per resource. `siblings`: the quotas below the same parent, without the quota; `parent`: None if its event
    is not known."""
    if quota.reason:
        yield f"it is not in the tree as its object declares: {quota.reason}"
    for resource in sorted(quota.runtime):
        built_in = quota.quota in BUILT_IN_QUOTAS
        yield f"{resource}: {_built_in(resource, quota) if built_in else _reason(resource, quota, parent, siblings)}"


def _built_in(resource: str, quota: QuotaRuntime) -> str:
    def shown(amount: int) -> str:
        return format_amount(resource, amount)

    runtime = shown(quota.runtime[resource])
    figures = f"requests {shown(quota.request.get(resource, 0))}; uses {shown(quota.used.get(resource, 0))}"
    if quota.quota != ROOT:
        return f"limited by its max, {runtime}: what it uses is taken off the total before that is shared; {figures}"
    if quota.tree:
        return f"{runtime} of the tree are shared below it; {figures}"
    return (
        f"{runtime} are shared below it: what the nodes offer, less the totals of other trees and what the default and the "
        f"system quota use; {figures}"
    )


def _reason(resource: str, quota: QuotaRuntime, parent: QuotaRuntime | None, siblings: Sequence[QuotaRuntime]) -> str:
    def shown(amount: int) -> str:
        return format_amount(resource, amount)

    runtime, minimum = quota.runtime[resource], quota.min.get(resource, 0)
    wanted, floor = _limited(quota, resource), _floor(quota, resource)
    parts = [f"runtime {shown(runtime)}"]
    above = parent.quota if parent is not None else quota.parent
    has = f" ({shown(parent.runtime.get(resource, 0))})" if parent is not None else ""
    scaled = quota.scaled_min.get(resource, 0)
    if scaled < minimum:
        parts.append(f"min {shown(minimum)} is scaled to {shown(scaled)}: the mins below {above} are more than it has{has}")
    limit = f", limited by max {shown(quota.max[resource])}" if quota.request.get(resource, 0) > wanted else ""
    asks = f"requests {shown(quota.request.get(resource, 0))}{limit}"
    if wanted > floor:
        competing = [each for each in siblings if _limited(each, resource) > _floor(each, resource)]
        weights = [each.shared_weight.get(resource, 0) for each in competing]
        weight = quota.shared_weight.get(resource, 0)
        competes = f"beyond its {shown(floor)} it competes for what {above}{has} has left"
        others = f", weight {shown(weight)} of {shown(weight + sum(weights))}" if weights else ", alone"
        got = "gets all of it" if runtime >= wanted else f"gets {shown(runtime - floor)} of {shown(wanted - floor)}"
        parts += [asks, f"{competes}{others}: it {got}"]
    elif quota.lends and runtime < floor:
        parts += [asks, f"less than its {shown(floor)}: others may use the rest"]
    elif not quota.lends and wanted < floor:
        parts += [asks, f"and keeps its {shown(floor)}: it does not lend"]
    else:
        parts.append(asks)
    used = quota.used.get(resource, 0)
    parts.append(f"uses {shown(used)}" + (", more than its runtime" if resource in quota.overused else ""))
    return "; ".join(parts)


def _limited(quota: QuotaRuntime, resource: str) -> int:
    asked = quota.request.get(resource, 0)
    return min(asked, quota.max.get(resource, asked))


def _floor(quota: QuotaRuntime, resource: str) -> int:
    return max(quota.scaled_min.get(resource, 0), quota.guaranteed.get(resource, 0))
