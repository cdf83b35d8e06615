"""Typed view of config.koordinator.sh/v1alpha1 ClusterColocationProfile: its changes to selected pods.

In: a document. Out: the view; `probability_percent`: how many of a hundred selected pods the profile is applied to.
Source: Koordinator's custom resource. An absent selector restricts nothing, an empty one selects everything.
"""

from __future__ import annotations

import re

import msgspec

from cotenant.api.objects.metadata import LabelSelector, ObjectMeta, View
from cotenant.model.bounds import Int32, Int64

_PERCENT = re.compile(r"([0-9]{1,3})%")


class ClusterColocationProfileSpec(View, frozen=True, kw_only=True):
    """The pods that it selects, and the changes, in the order in which they are applied."""

    namespace_selector: LabelSelector | None = None
    """Of the namespace's labels."""
    selector: LabelSelector | None = None
    """Of the pod's labels as submitted."""
    probability: Int32 | str | None = None
    """Of a hundred; a number, or a text such as `50%`. Absent: all."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    label_keys_mapping: dict[str, str] = {}
    """Label to copy, to the label that gets its value."""
    annotation_keys_mapping: dict[str, str] = {}
    label_suffixes: dict[str, str] = {}
    """Label to the text that is appended to its value, where it has one."""
    scheduler_name: str = ""
    qos_class: str = ""
    priority_class_name: str = ""
    koordinator_priority: Int64 | None = None
    """Sub-priority inside the priority class."""
    patch: msgspec.Raw = msgspec.Raw(b"")
    """A strategic merge patch of the pod."""


class ClusterColocationProfile(View, frozen=True, kw_only=True):
    """A rule that turns ordinary pods into colocated ones when they are created."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterColocationProfileSpec = ClusterColocationProfileSpec()


def probability_percent(probability: int | str | None) -> int:
    """Return the share of selected pods, 0..100. Raises ValueError that says what is expected."""
    percent: int | None = 100
    if isinstance(probability, str):
        match = _PERCENT.fullmatch(probability)
        percent = int(match.group(1)) if match else None
    elif probability is not None:
        percent = probability
    if percent is None or not 0 <= percent <= 100:
        raise ValueError("must be a number from 0 to 100, or a percentage such as '50%'")
    return percent
