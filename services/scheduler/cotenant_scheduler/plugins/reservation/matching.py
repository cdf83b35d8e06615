"""Which reservations a pod may use.

In: a pod's requirements of reservations (`Ask`), a reservation with a share of a node, the node's labels. Out: the first rule
that it fails. The rules, in order:

    ignored        the pod may use everything that is reserved; no other rule applies
    owners         one of the reservation's lists matches the pod (`state.reservations.rules`)
    name           where the affinity names one, it is this one, and an exact match is checked; no other rule applies
    unschedulable  it takes new owners and is not being deleted, or the affinity tolerates that
    taints         the affinity tolerates them; they do not concern a pod without affinity
    affinity       selector and terms hold for the node's labels, overlaid by the reservation's
    exact          it has exactly what the pod requests of the resources that the pod names
Source: Koordinator's reservation transformer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache

import msgspec

from cotenant.api.objects.reservation import Reservation
from cotenant.domain.reservations.affinity import (
    AffinityError,
    ReservationAffinity,
    affinity_of,
    exact_match_of,
    exactly_matches,
    ignores_reservations,
)
from cotenant.domain.reservations.names import ANNOTATION_AFFINITY
from cotenant.domain.reservations.operating import acts_as_reservation

AFFINITIES_CACHED = 4096


class Ask(msgspec.Struct, frozen=True):
    """What determines, beside its shape, which reservations a pod may use; pods with equal asks are equivalent."""

    owners: tuple[int, ...] = ()
    """Numbers of the lists of owners that match it."""
    affinity: str = ""
    """The text of its reservation affinity."""
    exact: tuple[str, ...] = ()
    ignored: bool = False
    acts: bool = False
    """It is to act as a reservation itself."""
    problem: str = ""
    """Why it cannot be placed: its requirements of reservations cannot be read."""

    @property
    def required(self) -> bool:
        """Whether it may be placed in a reservation only."""
        return bool(self.affinity)

    @property
    def wanted(self) -> ReservationAffinity | None:
        """Its affinity."""
        return _affinity(self.affinity) if self.affinity else None


@lru_cache(maxsize=AFFINITIES_CACHED)
def _affinity(text: str) -> ReservationAffinity | None:
    return affinity_of({ANNOTATION_AFFINITY: text})


class Miss(Enum):
    """The rule that a reservation fails."""

    NAME = "name"
    UNSCHEDULABLE = "unschedulable"
    TAINTS = "taints"
    AFFINITY = "affinity"
    EXACT = "exact"


def ask_of(labels: Mapping[str, str], annotations: Mapping[str, str], owners: tuple[int, ...]) -> Ask | None:
    """Return a pod's requirements of reservations; None if no reservation concerns it."""
    acts = acts_as_reservation(labels)
    if ignores_reservations(labels):
        return Ask(ignored=True, acts=acts)
    text = annotations.get(ANNOTATION_AFFINITY, "")
    if not (owners or text or acts):
        return None
    try:
        if text:
            _affinity(text)
        return Ask(owners, text, exact_match_of(annotations), acts=acts)
    except AffinityError as error:
        return Ask(owners, text, acts=acts, problem=str(error))


def takes_no_owners(reservation: Reservation) -> bool:
    """Return whether a reservation takes no new owners."""
    return reservation.spec.unschedulable or reservation.metadata.deletion_timestamp is not None


def missed(
    ask: Ask,
    requests: Mapping[str, int],
    reservation: Reservation,
    allocatable: Mapping[str, int],
    node_labels: Mapping[str, str],
) -> tuple[Miss, str] | None:
    """Return the first rule after `owners` that a reservation fails, with the taint if it is that; None: it matches."""
    if ask.ignored:
        return None
    affinity, spec = ask.wanted, reservation.spec
    if affinity is not None and affinity.name:
        if affinity.name != reservation.metadata.name:
            return Miss.NAME, ""
    else:
        if takes_no_owners(reservation) and not (affinity is not None and affinity.tolerates_unschedulable):
            return Miss.UNSCHEDULABLE, ""
        if affinity is not None and spec.taints:
            taint = affinity.untolerated(spec.taints)
            if taint is not None:
                return Miss.TAINTS, f"{{{taint.key}: {taint.value}}}"
        if affinity is not None:
            labels = {**node_labels, **reservation.metadata.labels}
            if not affinity.holds(reservation.metadata.name, labels):
                return Miss.AFFINITY, ""
    if ask.exact and not exactly_matches(ask.exact, requests, allocatable):
        return Miss.EXACT, ""
    return None
