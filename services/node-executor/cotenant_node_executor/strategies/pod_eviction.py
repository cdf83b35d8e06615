"""A pod's own settings about its eviction, for the strategies that evict.

In: labels, annotations, priority, grace period. Out: whether features that require permission may evict it, which ones, its
order, and how long it has. Source: eviction by priority, koordlet rules (v1.8).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.model.names import LABEL_PRIORITY

LABEL_EVICTION_ENABLED = "koordinator.sh/eviction-enabled"
ANNOTATION_EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
ANNOTATION_EVICTION_POLICY = "koordinator.sh/eviction-policy"
GRACE_SECONDS = 30
"""The most that an evicted pod gets between SIGTERM and SIGKILL, and what one gets that states no grace period."""
HIGHEST_BY_OFFER = 7999
"""Pods of a higher priority are never evicted for what the node offers."""
_MOST_DIGITS = 20
"""Longer ones are not read at all."""
_POLICIES = msgspec.json.Decoder(list[str])


def is_enabled(labels: Mapping[str, str]) -> bool:
    """Whether the pod permits eviction by features that require permission."""
    return labels.get(LABEL_EVICTION_ENABLED) == "true"


def grace_seconds(pod: Pod) -> int:
    """How long an evicted pod has: its own grace period, at most GRACE_SECONDS."""
    own = pod.spec.termination_grace_period_seconds
    return GRACE_SECONDS if own is None else max(min(own, GRACE_SECONDS), 0)


def policies_of(annotations: Mapping[str, str]) -> frozenset[str] | None:
    """The features that may evict the pod; None: all; none where the annotation cannot be read."""
    text = annotations.get(ANNOTATION_EVICTION_POLICY)
    if text is None:
        return None
    try:
        return frozenset(_POLICIES.decode(text))
    except msgspec.MsgspecError:
        return frozenset()


def rank_of(priority: int | None, labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[int, int, int]:
    """Eviction priority, priority, the label's priority (by default the priority); the lowest is evicted first."""
    own = priority or 0
    return _number(annotations.get(ANNOTATION_EVICTION_PRIORITY), 0), own, _number(labels.get(LABEL_PRIORITY), own)


def _number(text: str | None, default: int) -> int:
    """A number of 32 bits in decimal digits; the default for any other text."""
    if text is None or len(text) > _MOST_DIGITS or not text.removeprefix("-").isdecimal() or not text.isascii():
        return default
    number = int(text)
    return number if -(2**31) <= number < 2**31 else default
