"""The rules of quotas that an operator chooses; all services that compute runtimes need the same."""

from __future__ import annotations

import msgspec

from cotenant.domain.quota.trees.terminating import Terminating


class QuotaRules(msgspec.Struct, frozen=True, kw_only=True):
    """`scale_min`: mins that do not fit are scaled. `guarantee_usage`: capacity in use is not shared with other quotas (mins
    are then not scaled in effect).
    """

    scale_min: bool = True
    guarantee_usage: bool = False
    terminating: Terminating = Terminating.COUNT
    """Whether terminating pods count."""
    ignore_overhead: bool = False
    """Overhead of a pod's runtime class does not count."""
