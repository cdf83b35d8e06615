"""storage.k8s.io/v1 CSINode: the CSI drivers of a node. Source: Kubernetes' validation and printers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.storage import CsiNode, decode_csi_node
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, dns_subdomain, duplicate, forbidden, invalid, qualified_name, required

CSI_NODES = Kind("storage.k8s.io", "v1", "csinodes", "CSINode", False)


def csi_node_errors(csi_node: CsiNode, old: CsiNode | None = None) -> list[FieldError]:
    """Each driver once, with its id of the node; the other fields of a known driver stay."""
    found: list[FieldError] = []
    names: set[str] = set()
    for index, driver in enumerate(csi_node.spec.drivers):
        path = f"spec.drivers[{index}]"
        found += dns_subdomain(f"{path}.name", driver.name) if driver.name else [required(f"{path}.name")]
        if driver.name in names:
            found.append(duplicate(f"{path}.name", driver.name))
        names.add(driver.name)
        if not driver.node_id:
            found.append(required(f"{path}.nodeID"))
        for number, key in enumerate(driver.topology_keys):
            found += qualified_name(f"{path}.topologyKeys[{number}]", key)
        limit = driver.allocatable.count if driver.allocatable is not None else None
        if limit is not None and limit < 0:
            found.append(invalid(f"{path}.allocatable.count", limit, "must be greater than or equal to 0"))
        before = next((known for known in old.spec.drivers if known.name == driver.name), None) if old is not None else None
        if before is not None and (before.node_id, before.topology_keys) != (driver.node_id, driver.topology_keys):
            found.append(forbidden(path, "field is immutable"))
    return found


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = decode_csi_node(snapshot.document)
    return snapshot.address.name, len(shown.spec.drivers), age(shown.metadata.creation_timestamp, now)


def _errors(new: Any, old: Callable[[], Any]) -> list[FieldError]:
    return csi_node_errors(new, old())


DEFINITION = KindDefinition(
    CSI_NODES,
    decode=decode_csi_node,
    errors=_errors,
    layout=Layout((NAME, Column("Drivers", "integer"), AGE), _cells),
    ends_with_node=True,
)
