"""Why no reservation takes a pod, in words.

In: by node, how many reservations match the pod and which rules the others fail, and why the node refuses those that match.
Out: the lines of the waiting event, and the text about reservations alone. The lines, counts summed over the nodes, zeros left
out:

    N Reservation(s) exactly matches the requested reservation name | didn't match the requested reservation name |
    didn't match affinity rules | is unschedulable | is not exact matched | had untolerated taint {key: value} |
    for node reason that <reason> | matched owner total
Source: Koordinator's reservation PostFilter and its pod events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

_RESERVATIONS = " Reservation(s) "
_ITEM = re.compile(r"^(\d+) Reservation\(s\) (.*)$")
_TOTAL = "matched owner total"
_NODE_REASON = "for node reason that "
_EXACT_NAME = "exactly matches the requested reservation name"
_OF_RESERVATION = "Reservation(s) "


class Diagnosis(msgspec.Struct):
    """Counts of reservations on one node."""

    owner_matched: int = 0
    name_matched: int = 0
    name_unmatched: int = 0
    unschedulable: int = 0
    affinity_unmatched: int = 0
    not_exact: int = 0
    taints: int = 0
    taint_counts: dict[str, int] = {}
    ignored: int = 0

    @property
    def remaining(self) -> int:
        """Reservations that match in every respect."""
        missed = self.name_unmatched + self.unschedulable + self.affinity_unmatched + self.not_exact + self.taints
        return self.owner_matched - missed


def reservation_reasons(
    diagnoses: Mapping[str, Diagnosis], node_reasons: Mapping[str, Sequence[str]], *, required: bool
) -> list[str]:
    """Return the lines for a pod; none where no reservation matches it and it requires none."""
    total = sum(found.owner_matched for found in diagnoses.values())
    if not total and not required:
        return []
    lines: list[tuple[int, str]] = []

    def add(name: str, text: str) -> None:
        lines.append((sum(getattr(found, name) for found in diagnoses.values()), text))

    add("name_matched", _EXACT_NAME)
    add("name_unmatched", "didn't match the requested reservation name")
    add("affinity_unmatched", "didn't match affinity rules")
    add("unschedulable", "is unschedulable")
    add("not_exact", "is not exact matched")
    taints: dict[str, int] = {}
    for found in diagnoses.values():
        for taint, count in found.taint_counts.items():
            taints[taint] = taints.get(taint, 0) + count
    lines += [(count, f"had untolerated taint {taint}") for taint, count in sorted(taints.items())]
    reasons = _node_reasons(diagnoses, node_reasons)
    lines += [(count, f"{_NODE_REASON}{reason}") for reason, count in sorted(reasons.items())]
    lines.append((total, _TOTAL))
    return [f"{count}{_RESERVATIONS}{text}" for count, text in lines if count]


def _node_reasons(diagnoses: Mapping[str, Diagnosis], node_reasons: Mapping[str, Sequence[str]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node, found in sorted(diagnoses.items()):
        reasons = node_reasons.get(node, ())
        remain = found.remaining - sum(reason.startswith(_OF_RESERVATION) for reason in reasons)
        if remain <= 0:
            continue
        for reason in reasons:
            if not reason.startswith(_OF_RESERVATION):
                counts[reason] = counts.get(reason, 0) + remain
    return counts


def reservation_message(message: str) -> str:
    """Return the part of a waiting pod's text about reservations: `0/3 reservations are available: ...`; empty without
    any. The text of a gang quotes that of its member."""
    _, colon, listed = message.partition(": ")
    if not colon:
        return ""
    items = [item.strip('. "') for item in listed.replace(". ", ", ").split(",")]
    found = [(match[1], match[2]) for item in items if (match := _ITEM.match(item))]
    total = next((count for count, text in found if text == _TOTAL), "")
    if not total:
        return ""
    rest = [(count, text) for count, text in found if text != _TOTAL]
    ordered = sorted(rest, key=lambda item: _rank(item[1]))
    listed = ", ".join(f"{count}{_RESERVATIONS}{text}" for count, text in ordered)
    return f"0/{total} reservations are available: {listed}."


def _rank(text: str) -> int:
    if text.startswith(_EXACT_NAME):
        return 0
    return 2 if text.startswith(_NODE_REASON) else 1


def counted(texts: Iterable[str]) -> dict[str, int]:
    """Return how often each text occurs."""
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return counts
