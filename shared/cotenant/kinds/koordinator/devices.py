"""scheduling.koordinator.sh/v1alpha1 Device: the GPUs, RDMA and FPGA devices of the node of that name, as an agent reports.

Stored and shown as given. Its rules: a type for each device, minors that are each there once a type, readable quantities.
`kubectl get` shows how many devices of each type are healthy. Source: Koordinator's custom resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.device import Device, decode_device
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, duplicate, invalid, quantity, required

DEVICES = Kind("scheduling.koordinator.sh", "v1alpha1", "devices", "Device", False)


def device_errors(device: Device) -> list[FieldError]:
    """Return the errors of a Device by itself."""
    return list(_errors(device))


def _errors(device: Device) -> Iterator[FieldError]:
    seen: set[tuple[str, int]] = set()
    for index, found in enumerate(device.spec.devices):
        path = f"spec.devices[{index}]"
        if not found.type:
            yield required(f"{path}.type", "one of gpu, rdma, fpga, or another type that pods request")
        minor = found.minor if found.minor is not None else 0
        if minor < 0:
            yield invalid(f"{path}.minor", minor, "must not be negative")
        if (found.type, minor) in seen:
            yield duplicate(f"{path}.minor", minor)
        seen.add((found.type, minor))
        for resource, amount in found.resources.items():
            yield from quantity(f"{path}.resources[{resource}]", amount, resource=resource)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = decode_device(snapshot.document)
    counts, healthy = Counter[str](), Counter[str]()
    for found in shown.spec.devices:
        counts[found.type] += 1
        healthy[found.type] += found.health
    counted = ",".join(f"{kind} {healthy[kind]}/{count}" for kind, count in sorted(counts.items()))
    return snapshot.address.name, counted or "<none>", age(shown.metadata.creation_timestamp, now)


DEFINITION = KindDefinition(
    DEVICES,
    decode=decode_device,
    errors=lambda device, _: device_errors(device),
    layout=Layout((NAME, Column("Healthy"), AGE), _cells),
    has_status=True,
)
