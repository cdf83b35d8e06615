"""slo.koordinator.sh/v1alpha1 NodeSLO = slo + document, if a user wrote one.

In: the `node.<node>.slo` event. Out: the object as Koordinator's custom resource spells it: the sections that
batch-resource-calculator renders, over the document's, whose `extensions`, labels and annotations stay.
"""

from __future__ import annotations

import msgspec

from cotenant.api.definitions import KindDefinition, node_of_subject
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.overlay import Overlay, head_of
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import is_object, members
from cotenant.api.times import derived_uid
from cotenant.events.node.resources import NodeSLORendered

NODE_SLOS = Kind("slo.koordinator.sh", "v1alpha1", "nodeslos", "NodeSLO", False, (), True)


def compose_node_slo(snapshot: Snapshot) -> Overlay:
    """Return the NodeSLO of a node."""
    for event in snapshot.parts.values():
        if isinstance(event.data, NodeSLORendered) and not event.tombstone:
            slo = event.data
            threshold = {
                "enable": slo.enable,
                "cpuSuppressThresholdPercent": slo.cpu_suppress_threshold_percent,
                "cpuSuppressMinPercent": slo.cpu_suppress_min_percent,
                "cpuSuppressPolicy": slo.cpu_suppress_policy,
            }
            uid = derived_uid("NodeSLO", snapshot.address.name)
            # A calculator that renders the whole spec puts it into the event; an older one, the threshold section alone.
            rendered = is_object(slo.spec) and bool(members(slo.spec))
            return Overlay(
                head=head_of(
                    NODE_SLOS.api_version, "NodeSLO", slo.spec if rendered else {"resourceUsedThresholdWithBE": threshold}
                ),
                metadata={"name": snapshot.address.name, "uid": uid},
                annotations={"cotenant.io/reason": slo.reason} if slo.reason else {},
                uid=uid,
            )
    return Overlay()


class NodeSLOSpec(View, frozen=True, kw_only=True):
    """What a user may declare: settings that other programs than cotenant read. The other sections are rendered."""

    extensions: dict[str, msgspec.Raw] = {}


class NodeSLO(View, frozen=True, kw_only=True):
    """The document of a NodeSLO."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSLOSpec = NodeSLOSpec()


DEFINITION = KindDefinition(
    NODE_SLOS,
    decode=msgspec.json.Decoder(NodeSLO).decode,
    compose=compose_node_slo,
    parts={NodeSLORendered: node_of_subject},
    declarable=True,
    created_with_node=True,
    ends_with_node=True,
)
