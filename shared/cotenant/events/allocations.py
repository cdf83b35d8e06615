"""A pod's allocation on a node beyond amounts: individual CPUs, NUMA nodes and devices, a reservation, its gang.

A placement carries one `Allocation`; a new part of it is a field here, which all stores, views and copies of
placements include.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cotenant.events.envelope import Part
from cotenant.model.bounds import Amount, Int32


class NumaShare(Part, frozen=True, kw_only=True):
    """Amounts taken from one NUMA node (cpu in milli-cores, others in units)."""

    node: Int32
    resources: dict[str, Amount] = {}


class DeviceShare(Part, frozen=True, kw_only=True):
    """The share of one device: `type` such as `gpu`, the device's `minor` number on its node, amounts of its resources."""

    type: str
    minor: Int32
    resources: dict[str, Amount] = {}


class ReservationUsed(Part, frozen=True, kw_only=True):
    """The reservation whose room the pod takes. `name` is that of a Reservation, or `namespace/name` of a pod that acts as one
    (operating mode `Reservation`); such a pod's own placement names itself."""

    name: str
    uid: str = ""


class VolumeGiven(Part, frozen=True, kw_only=True):
    """The volume to which an unbound claim of the pod is to be bound; empty: one that is to be provisioned on the
    pod's node. `claim` is a name in the pod's namespace."""

    claim: str
    volume: str = ""


class Gathered(Part, frozen=True, kw_only=True):
    """The domain of the network in which a gang was placed together, and why there: `domain` is its path from the widest layer
    down; it had room for `slots` of the gang's `pods`; `domains`: how many domains of the layer had room for all."""

    layer: str
    domain: str
    pods: Int32 = 0
    slots: Int32 = 0
    domains: Int32 = 0


class Allocation(Part, frozen=True, kw_only=True):
    """Parts are empty if nothing was allocated. `cpus`: numbers of the CPUs that the pod runs on alone, ascending; `gang`:
    `namespace/name` of the gang that it was placed with."""

    cpus: tuple[Int32, ...] = ()
    numa: tuple[NumaShare, ...] = ()
    devices: tuple[DeviceShare, ...] = ()
    reservation: ReservationUsed | None = None
    gang: str = ""
    volumes: tuple[VolumeGiven, ...] = ()
    gathered: Gathered | None = None
    """Where the gang's pods are together in the network, if it asks for that."""


_DEFAULTS = Allocation()
_FIELDS = tuple(field.name for field in msgspec.structs.fields(Allocation))


def merged(fragments: Sequence[Allocation]) -> Allocation | None:
    """Return the allocation that joins fragments, None if there are none. Lists are joined in the order of the fragments.
    Raises ValueError if two fragments set the same single part."""
    whole: Allocation | None = None
    for fragment in fragments:
        whole = fragment if whole is None else _joined(whole, fragment)
    return whole


def _joined(first: Allocation, second: Allocation) -> Allocation:
    parts: dict[str, object] = {}
    for name in _FIELDS:
        mine, other, default = (getattr(source, name) for source in (first, second, _DEFAULTS))
        if other == default:
            continue
        if mine == default:
            parts[name] = other
        elif isinstance(mine, tuple) and isinstance(other, tuple):
            parts[name] = (*mine, *other)
        else:
            raise ValueError(f"a pod is given its {name} twice: {mine!r} and {other!r}")
    return msgspec.structs.replace(first, **parts)
