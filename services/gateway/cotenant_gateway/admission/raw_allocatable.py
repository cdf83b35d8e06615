"""Writes of an amplified node's status: what a client was shown and writes back does not become a raw amount.

In: an update of a Node that the calculator amplifies. Out: the document with raw cpu and memory in its allocatable, which is
what is stored; the API amplifies them when it shows the Node. An amount that equals the one shown is the amplified one, any
other is what the machine offers now. Source: Koordinator's node status webhook (`cotenant.domain.amplification`).
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.node import Node, decode_node
from cotenant.api.splices import member_object, members, raw
from cotenant.domain.amplification import AmplificationError, raw_changed, written_raw
from cotenant.model.names import ANNOTATION_AMPLIFICATION_RATIO
from cotenant.model.quantities import QuantityError
from cotenant_gateway.admission.review import Mutation, Review

_WRITTEN_BACK = "amplified cpu and memory were written back: the raw amounts stay"
_NEW = "cpu and memory count as what the machine offers without amplification"


def keep_raw_allocatable(review: Review) -> Mutation | None:
    """Put the raw amounts in the place of amplified ones; validation says what is wrong with a quantity."""
    old, view = review.old, review.view
    if old is None or ANNOTATION_AMPLIFICATION_RATIO not in old.overlay.annotations or not isinstance(view, Node):
        return None
    given = view.status.allocatable
    try:
        shown = decode_node(old.document)
        found = written_raw(shown.metadata.annotations, shown.status.allocatable, given)
        changed = raw_changed(shown.status.allocatable, given)
    except (AmplificationError, QuantityError, msgspec.DecodeError):
        return None
    written = {name: quantity for name, quantity in found.items() if name in given and given[name] != quantity}
    if not written:
        return None
    top = members(review.document)
    status = member_object(top, "status")
    allocatable = member_object(status, "allocatable")
    allocatable.update((name, raw(quantity)) for name, quantity in written.items())
    status["allocatable"] = raw(allocatable)
    top["status"] = raw(status)
    return Mutation(raw(top), (_NEW if changed else _WRITTEN_BACK,))
