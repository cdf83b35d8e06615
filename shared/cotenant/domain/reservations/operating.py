"""Pods that act as reservations: the operating mode `Reservation`.

In: labels and annotations of a pod, what it reports of its run. Out: the Reservation that it acts as, or why it cannot. Rules:

    scheduling.koordinator.sh/operating-mode     label: `Reservation` (it acts as one), `Runnable` (it does not)
    scheduling.koordinator.sh/reservation-owners annotation: JSON list of owners, as in the `owners` of a Reservation
    node.koordinator.sh/reservation              annotation: what of its requests nobody may be given

It is a reservation of its own requests on its own node while it runs and is ready; its policy is Aligned, and it is allocated
once: as long as a pod uses it, no other does. Source: Koordinator's operating mode of pods.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.metadata import ObjectMeta
from cotenant.api.objects.reservation import OwnerRule, Reservation, ReservationSpec
from cotenant.domain.reservations.names import (
    ANNOTATION_OWNERS,
    LABEL_OPERATING_MODE,
    POLICY_ALIGNED,
)
from cotenant.domain.reservations.options import OptionsError, reserved_inside
from cotenant.domain.reservations.owners import check_owners
from cotenant.domain.selectors import SelectorError
from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.node.runs import RunStatus
from cotenant.model.names import ANNOTATION_NODE_RESERVATION

MODE_RESERVATION = "Reservation"
MODES = ("Runnable", MODE_RESERVATION)

_OWNERS = msgspec.json.Decoder(list[OwnerRule])


def acts_as_reservation(labels: Mapping[str, str]) -> bool:
    """Return whether a pod acts as a reservation while it runs and is ready."""
    return labels.get(LABEL_OPERATING_MODE) == MODE_RESERVATION


def acting_name(namespace: str, name: str) -> str:
    """Return the name by which placements refer to a pod that acts as a reservation; no Reservation has a slash in its own."""
    return f"{namespace}/{name}"


def is_available(node: str, run: RunStatus | None) -> bool:
    """Return whether a pod in that mode can be used: it has a node, runs there and is ready."""
    return bool(node) and run is not None and run.ready


def owners_of(annotations: Mapping[str, str]) -> list[OwnerRule]:
    """Return who may use a pod that acts as a reservation; without the annotation nobody. Raises OptionsError."""
    text = annotations.get(ANNOTATION_OWNERS)
    if not text:
        return []
    try:
        owners = _OWNERS.decode(text)
        check_owners(owners)
    except (msgspec.DecodeError, SelectorError) as error:
        raise OptionsError(f"annotation {ANNOTATION_OWNERS}: {error}") from error
    return owners


def reservation_of(metadata: ObjectMeta) -> Reservation:
    """Return the Reservation that a pod acts as. Raises OptionsError."""
    spec = ReservationSpec(
        owners=owners_of(metadata.annotations), ttl="0s", allocate_once=True, allocate_policy=POLICY_ALIGNED
    )
    return Reservation(metadata=metadata, spec=spec)


def with_itself(allocation: Allocation | None, key: tuple[str, str], uid: str, *, acts: bool) -> Allocation | None:
    """Return the allocation for the placement of a pod (`key`: namespace and name): one that acts as a reservation
    names itself as the one that it belongs to, unless it uses another; one that no longer acts as such does not."""
    used = allocation.reservation if allocation is not None else None
    own = ReservationUsed(name=acting_name(*key), uid=uid)
    if acts and used is None:
        return msgspec.structs.replace(allocation or Allocation(), reservation=own)
    if not acts and used == own and allocation is not None:
        rest = msgspec.structs.replace(allocation, reservation=None)
        return rest if rest != Allocation() else None
    return allocation


def names_itself(used: ReservationUsed, key: tuple[str, str]) -> bool:
    """Return whether a pod's allocation names the pod itself as the reservation."""
    return "/" in used.name and used.name == acting_name(*key)


def operating_errors(labels: Mapping[str, str], annotations: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (`labels` or `annotations`, name, what is wrong) of each that cannot be used."""
    mode = labels.get(LABEL_OPERATING_MODE)
    if mode is None:
        return []
    if mode not in MODES:
        return [("labels", LABEL_OPERATING_MODE, f"must be one of {', '.join(MODES)}")]
    if mode != MODE_RESERVATION:
        return []
    found: list[tuple[str, str, str]] = []
    for name, read in ((ANNOTATION_OWNERS, owners_of), (ANNOTATION_NODE_RESERVATION, reserved_inside)):
        try:
            read(annotations)
        except OptionsError as error:
            found.append(("annotations", name, str(error)))
    return found
