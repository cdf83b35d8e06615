"""Writes of a node's status: amounts that the calculator added to the node, read and written back, do not become the machine's.

In: an update of a Node. Out: the document with raw cpu and memory in its allocatable, which is what is stored: the API
amplifies them when it shows the Node. An amount that equals the one shown is the amplified one, any other is the machine's
new amount. Device totals that are written back as shown are left out unless the object declared them before. Source:
Koordinator's node status webhook (`cotenant.domain.amplification`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.node import Node, decode_node
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import Members, member_object, members, raw
from cotenant.domain.amplification import AmplificationError, raw_changed, written_raw
from cotenant.events.node.resources import NodeResources
from cotenant.model.quantities import QuantityError, Scalar
from cotenant_gateway.admission.review import Mutation, Review

_WRITTEN_BACK = "the calculator's amounts were written back: the machine's own amounts stay"
_NEW = "cpu and memory count as the machine's amounts before amplification"


def keep_raw_allocatable(review: Review) -> Mutation | None:
    """Replace the calculator's amounts by the machine's; validation reports invalid quantities."""
    resources = _resources(review.old)
    if review.old is None or resources is None or not isinstance(review.view, Node):
        return None
    given, declared = review.view.status, review.old_view(Node)
    assert declared is not None
    try:
        shown = decode_node(review.old.document).status
        own = _raw(review.old, shown.allocatable, given.allocatable) if resources.amplification else {}
        changed = bool(own) and raw_changed(shown.allocatable, given.allocatable)
    except (AmplificationError, QuantityError, msgspec.DecodeError):
        return None
    sections = (
        ("allocatable", given.allocatable, shown.allocatable, declared.status.allocatable),
        ("capacity", given.capacity, shown.capacity, declared.status.capacity),
    )
    top = members(review.document)
    status = member_object(top, "status")
    before = dict(status)
    for name, amounts, offered, before_this in sections:
        new = [key for key in resources.devices if key in amounts and key not in before_this]
        stale = [key for key in new if amounts[key] == offered.get(key)]
        wanted = own if name == "allocatable" else {}
        if stale or wanted:
            status[name] = raw(_changed(member_object(status, name), wanted, stale))
    if status == before:
        return None
    top["status"] = raw(status)
    return Mutation(raw(top), (_NEW if changed else _WRITTEN_BACK,))


def _resources(old: Snapshot | None) -> NodeResources | None:
    """The calculator's decision about the node."""
    parts = (event for event in old.parts.values() if not event.tombstone) if old is not None else ()
    return next((event.data for event in parts if isinstance(event.data, NodeResources)), None)


def _raw(old: Snapshot, shown: Mapping[str, Scalar], given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    found = written_raw(decode_node(old.document).metadata.annotations, shown, given)
    return {name: quantity for name, quantity in found.items() if name in given and given[name] != quantity}


def _changed(amounts: Members, wanted: Mapping[str, Scalar], stale: list[str]) -> Members:
    kept = {name: quantity for name, quantity in amounts.items() if name not in stale}
    return {**kept, **{name: raw(quantity) for name, quantity in wanted.items()}}
