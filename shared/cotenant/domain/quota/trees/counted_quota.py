"""What a tree keeps of one quota: its place in the tree and its sums; and the arithmetic of such sums.

In: the quota with its effective parent. Out: slots that only `tree` writes. Amounts are integers: cpu in milli-cores,
everything else in base units; no amount of a sum is zero, so a missing resource and none of it are the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.domain.quota.sums import OwnPods, QuotaNode, QuotaSums
from cotenant.domain.quota.trees.family import Family
from cotenant.domain.quota.trees.line import Line
from cotenant.model.amounts import Amounts, larger, limited, without_zeros


class SolvedQuota(msgspec.Struct, frozen=True, kw_only=True):
    """One quota. Amounts: cpu in milli-cores, everything else in base units; `runtime` has the resources of max."""

    name: str
    parent: str = ""
    reason: str = ""
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    scaled_min: dict[str, int] = {}
    runtime: dict[str, int] = {}
    sums: QuotaSums = QuotaSums()
    overused: tuple[str, ...] = ()
    """Resources in which used is above runtime, sorted."""


class CountedQuota:
    """One quota of the tree; the root and the built-in ones too."""

    __slots__ = (
        "allocated",
        "below",
        "child_request",
        "family",
        "guaranteed",
        "has",
        "index",
        "lends",
        "lines",
        "name",
        "node",
        "non_preemptible_request",
        "non_preemptible_used",
        "own",
        "parent",
        "path",
        "reason",
        "runtime",
        "runtime_of",
        "stale",
        "stale_below",
        "used",
        "version",
    )

    def __init__(self, node: QuotaNode, parent: CountedQuota | None, reason: str = "", *, lends: bool = True) -> None:
        """`lends`: it requests no more than its pods and children do."""
        self.node = node
        self.name = node.name
        self.parent = parent
        self.reason = reason
        self.lends = lends
        self.index = 0
        """Its index among the children of its parent; -1 if it takes no part in the sharing."""
        self.family: Family | None = None
        """The children of its parent, which share with it; None where it takes no part in the sharing."""
        self.lines: Mapping[str, Line] = {}
        """Those of the family."""
        self.below: Family | None = None
        self.stale = False
        """What its children get may have changed since `changed` was last called."""
        self.stale_below = False
        """It is stale, or a quota below it is."""
        self.path: tuple[CountedQuota, ...] = ()
        """The quotas from below the root down to this one."""
        self.own: tuple[dict[str, int], dict[str, int], dict[str, int], dict[str, int]] = ({}, {}, {}, {})
        """Sums over its own pods: request, used, and of each the non-preemptible part."""
        self.child_request: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.non_preemptible_request: dict[str, int] = {}
        self.non_preemptible_used: dict[str, int] = {}
        self.allocated: dict[str, int] = {}
        self.guaranteed: dict[str, int] = {}
        self.has: dict[str, int] = {}
        """What it gets, in the resources that its family shares, as of `version`; the same object while it does not change."""
        self.version = -1
        self.runtime: dict[str, int] = {}
        """What it gets, in the resources of its max, as of `runtime_of`."""
        self.runtime_of: dict[str, int] | None = None


def sums_of(quota: CountedQuota) -> QuotaSums:
    """Return its sums as an independent value."""
    asked, used, non_preemptible_request, non_preemptible_used = (dict(part) for part in quota.own)
    request = quota.child_request if quota.lends else without_zeros(larger(quota.child_request, quota.node.min))
    return QuotaSums(
        own=OwnPods(
            request=asked,
            used=used,
            non_preemptible_request=non_preemptible_request,
            non_preemptible_used=non_preemptible_used,
        ),
        child_request=dict(quota.child_request),
        request=dict(request),
        limit_request=without_zeros(limited(request, quota.node.max)),
        used=dict(quota.used),
        non_preemptible_request=dict(quota.non_preemptible_request),
        non_preemptible_used=dict(quota.non_preemptible_used),
        allocated=dict(quota.allocated),
        guaranteed=dict(quota.guaranteed),
    )


def put(amounts: dict[str, int], resource: str, amount: int) -> None:
    """Set an amount; no sum has one of zero."""
    if amount:
        amounts[resource] = amount
    else:
        amounts.pop(resource, None)


def add(amounts: dict[str, int], delta: Amounts) -> None:
    """Add amounts, which may be negative; no sum has one of zero."""
    for resource, amount in delta.items():
        now = amounts.get(resource, 0) + amount
        if now:
            amounts[resource] = now
        else:
            amounts.pop(resource, None)
