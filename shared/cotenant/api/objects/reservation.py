"""Typed view of scheduling.koordinator.sh/v1alpha1 Reservation."""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import LabelSelector, ObjectMeta, OwnerReference, View
from cotenant.api.objects.node import Taint
from cotenant.api.objects.pod import NodeSelectorTerm, PodSpec, Toleration
from cotenant.api.objects.policies import ObjectReference
from cotenant.model.by_identity import by_identity

REMEMBERED = 128


class ControllerReference(OwnerReference, frozen=True, kw_only=True):
    """An owner reference of the pods, with the namespace that they are in."""

    namespace: str = ""


class OwnerRule(View, frozen=True, kw_only=True):
    """Pods that may use the reservation: all given parts must match."""

    object: ObjectReference | None = None
    controller: ControllerReference | None = None
    label_selector: LabelSelector | None = None


class RequiredReservations(View, frozen=True, kw_only=True):
    """Terms of which one must hold for a reservation."""

    reservation_selector_terms: list[NodeSelectorTerm] = []


class StatedAffinity(View, frozen=True, kw_only=True):
    """What a pod's annotation says of the reservations that it must use one of."""

    name: str = ""
    required: RequiredReservations | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    reservation_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class StatedExactMatch(View, frozen=True, kw_only=True):
    """What a pod's annotation says of the resources that its reservation must have exactly as requested."""

    resource_names: list[str] = []


class PodTemplate(View, frozen=True, kw_only=True):
    """The pod that the reservation is placed as."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class PreAllocationPolicy(View, frozen=True, kw_only=True):
    """Which running pods may become owners of a reservation that takes over their room."""

    mode: str = ""
    enable_multiple: bool = False


class ReservationSpec(View, frozen=True, kw_only=True):
    """What is reserved, for whom, and for how long. `ttl` is a Go duration, `expires` a time; `allocate_once` None is true."""

    template: PodTemplate | None = None
    owners: list[OwnerRule] = []
    ttl: str | None = None
    expires: str | None = None
    pre_allocation: bool = False
    pre_allocation_policy: PreAllocationPolicy | None = None
    allocate_once: bool | None = None
    allocate_policy: str = ""
    unschedulable: bool = False
    taints: list[Taint] = []


class Reservation(View, frozen=True, kw_only=True):
    """The fields of a Reservation that are read; its status is composed."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReservationSpec = ReservationSpec()


_DECODER = msgspec.json.Decoder(Reservation)


def _decode(document: bytes | msgspec.Raw) -> Reservation:
    return _DECODER.decode(document)


decode_reservation = by_identity(_decode, remembered=REMEMBERED)
"""Decode a Reservation; one view for all who read the same document. Raises msgspec.DecodeError."""
