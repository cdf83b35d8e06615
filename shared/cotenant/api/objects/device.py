"""Typed view of scheduling.koordinator.sh/v1alpha1 Device: the devices of one node."""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.model.bounds import Int32
from cotenant.model.quantities import Scalar


class DeviceInfo(View, frozen=True, kw_only=True):
    """One device. `health` counts as false where it is absent."""

    type: str = ""
    id: str = ""
    minor: Int32 | None = None
    health: bool = False
    resources: dict[str, Scalar] = {}


class DeviceSpec(View, frozen=True, kw_only=True):
    """The devices."""

    devices: list[DeviceInfo] = []


class Device(View, frozen=True, kw_only=True):
    """The devices of the node of that name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceSpec = DeviceSpec()


_DECODER = msgspec.json.Decoder(Device)


def decode_device(raw: bytes | memoryview | msgspec.Raw) -> Device:
    """Return the typed view. Raises msgspec.ValidationError with the field's path, or DecodeError."""
    return _DECODER.decode(raw)
