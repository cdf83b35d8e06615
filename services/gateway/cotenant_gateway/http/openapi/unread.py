"""Members of Koordinator's kinds that no service reads, so that the types which decode these kinds leave them out.

Out: by the name of the type, or of the kind where a member is beside `spec`, the schema of each such member. Together with the
types' own members they are complete: what is in neither is an unknown field. Contents that Koordinator leaves open, and those
of a NodeSLO's sections, which cotenant renders itself, are open here. Source: Koordinator's custom resource definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPEN: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""An object whose members nobody states."""
_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_LIST = {"type": "array", "items": OPEN}

OPEN_TYPES = frozenset({"PodTemplate", "ReservationTemplate"})
"""Types of which any member is accepted, as Koordinator does: its manual has a Reservation with `template.namespace`. The
members of a template's pod spec are those of any pod, so there a mis-spelled one is named, which Koordinator does not do."""

UNREAD: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "PodGroupSpec": {"minResources": OPEN},
    "ObjectReference": {"fieldPath": _TEXT, "resourceVersion": _TEXT},
    "ControllerReference": {"blockOwnerDeletion": {"type": "boolean"}},
    "ReservationOptions": {"preemptionOptions": OPEN},
    "DeviceInfo": {
        "conditions": _LIST,
        "labels": _TEXTS,
        "moduleID": _NUMBER,
        "topology": {
            "type": "object",
            "properties": {"busID": _TEXT, "nodeID": _NUMBER, "pcieID": _TEXT, "socketID": _NUMBER},
        },
        "vfGroups": _LIST,
    },
    "NodeSLOSpec": {
        "cpuBurstStrategy": OPEN,
        "hostApplications": _LIST,
        "resourceQOSStrategy": OPEN,
        "resourceUsedThresholdWithBE": OPEN,
        "systemStrategy": OPEN,
    },
    "NodeResourceTopology": {"attributes": _LIST},
}
