"""A pod's requirements of reservations: affinity, exact match, or that it ignores them.

In: labels and annotations of a pod; labels and taints of a reservation. Out: parsed requirements, and whether they hold.
Source: Koordinator's reservation extension.

    scheduling.koordinator.sh/reservation-affinity      {"name": "r", "reservationSelector": {}, "tolerations": [],
                                                         "requiredDuringSchedulingIgnoredDuringExecution":
                                                             {"reservationSelectorTerms": []}}
    scheduling.koordinator.sh/exact-match-reservation   {"resourceNames": ["cpu"]}
    scheduling.koordinator.sh/reservation-ignored       "true" (a label)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cotenant.api.objects.node import Taint
from cotenant.api.objects.pod import NodeSelectorTerm, Toleration
from cotenant.api.objects.reservation import StatedAffinity, StatedExactMatch
from cotenant.api.objects.selectors import any_node_term_holds
from cotenant.domain.reservations.names import ANNOTATION_AFFINITY, ANNOTATION_EXACT_MATCH, LABEL_IGNORED
from cotenant.domain.tolerations import tolerated, untolerated

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class AffinityError(ValueError):
    """An annotation of a pod cannot be read; the text says which and why."""


_AFFINITY = msgspec.json.Decoder(StatedAffinity)
_EXACT = msgspec.json.Decoder(StatedExactMatch)


class ReservationAffinity(msgspec.Struct, frozen=True):
    """The reservations that a pod must use one of. `terms` None: no terms are given; empty terms hold for nothing."""

    name: str = ""
    terms: tuple[NodeSelectorTerm, ...] | None = None
    selector: Mapping[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()

    def holds(self, reservation: str, labels: Mapping[str, str]) -> bool:
        """Return whether selector and terms hold for a reservation with these labels (the node's, overlaid by its own)."""
        if any(labels.get(key) != value for key, value in self.selector.items()):
            return False
        return self.terms is None or any_node_term_holds(self.terms, reservation, labels)

    @property
    def tolerates_unschedulable(self) -> bool:
        """Whether it may use reservations that take no new owners."""
        return tolerated(UNSCHEDULABLE, self.tolerations)

    def untolerated(self, taints: Sequence[Taint]) -> Taint | None:
        """Return the first hard taint that it does not tolerate."""
        return untolerated(taints, self.tolerations)


def ignores_reservations(labels: Mapping[str, str]) -> bool:
    """Return whether a pod may use what is reserved without owning it."""
    return labels.get(LABEL_IGNORED) == "true"


def affinity_of(annotations: Mapping[str, str]) -> ReservationAffinity | None:
    """Return a pod's reservation affinity; None without one. Raises AffinityError."""
    text = annotations.get(ANNOTATION_AFFINITY)
    if not text:
        return None
    try:
        found = _AFFINITY.decode(text)
    except msgspec.DecodeError as error:
        raise AffinityError(f"annotation {ANNOTATION_AFFINITY}: {error}") from error
    terms = tuple(found.required.reservation_selector_terms) if found.required is not None else None
    return ReservationAffinity(found.name, terms, found.reservation_selector, tuple(found.tolerations))


def exact_match_of(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the resources of which a reservation must have exactly what the pod requests. Raises AffinityError."""
    text = annotations.get(ANNOTATION_EXACT_MATCH)
    if not text:
        return ()
    try:
        return tuple(_EXACT.decode(text).resource_names)
    except msgspec.DecodeError as error:
        raise AffinityError(f"annotation {ANNOTATION_EXACT_MATCH}: {error}") from error


def exactly_matches(names: Sequence[str], requests: Mapping[str, int], allocatable: Mapping[str, int]) -> bool:
    """Return whether a reservation has what is requested of these resources. One that neither has ends the comparison."""
    for name in names:
        asked, held = requests.get(name), allocatable.get(name)
        if asked is None and held is None:
            return True
        if asked != held:
            return False
    return True
