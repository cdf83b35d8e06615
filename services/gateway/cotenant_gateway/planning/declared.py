"""Writes to objects that are derived from other services' facts (`Definition.declarable`).

In: such an object without a document. Out: it with an empty document, so that a write proceeds as with any object:
the facts are removed from the written document, the rest is stored. Its uid differs from the object's uid
without a document, so that the document's deletion is visible. Also the plans that end the documents of deleted nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from cotenant.api.snapshots import Snapshot, stored_document
from cotenant.api.splices import raw
from cotenant.api.times import derived_uid, rfc3339
from cotenant.kinds.nodes import NODES
from cotenant.log.plans import Plan
from cotenant_gateway.planning.endings import MAX_PLANS, end
from cotenant_gateway.read_model.core import GatewayCore


def with_document(core: GatewayCore, snapshot: Snapshot) -> Snapshot:
    """Return a declarable object with an empty document if it has none; any other as it is."""
    address = snapshot.address
    kind = address.kind
    if snapshot.stored is not None or not core.kinds.of(kind).declarable:
        return snapshot
    sequence = core.own_sequence(kind, address.namespace, address.name)
    uid = derived_uid(kind.kind, address.name, str(max(sequence, snapshot.version)))
    metadata: dict[str, object] = {"name": address.name, "uid": uid}
    times = [event.time for event in snapshot.parts.values() if event.time is not None]
    if snapshot.created:
        metadata["creationTimestamp"] = snapshot.created
    elif times:
        metadata["creationTimestamp"] = rfc3339(min(times))
    document = raw({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata})
    return Snapshot(address, stored_document(document, sequence, None), snapshot.parts, snapshot.version, snapshot.composer)


def documents_of_no_node(core: GatewayCore) -> Iterator[Plan]:
    """Yield the plans that end documents whose node is gone, at most MAX_PLANS."""
    yield from islice(_of_no_node(core), MAX_PLANS)


def _of_no_node(core: GatewayCore) -> Iterator[Plan]:
    nodes = core.collections[NODES].slots
    for slot in core.declared.values():
        node = nodes.get(("", slot.address.name))
        if (node is None or node.stored is None) and (snapshot := slot.snapshot) is not None and snapshot.stored is not None:
            yield end(snapshot)
