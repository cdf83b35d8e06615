"""Objects as the core takes them: an unreadable one becomes a value with the reason.

In: stored objects. Out: a configuration, a node, the totals of its devices.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.device import decode_device
from cotenant.api.objects.metadata import ObjectMeta
from cotenant.api.objects.node import Node, decode_node
from cotenant.api.objects.policies import ConfigMap
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.model.names import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from cotenant_batch_resource_calculator.config.in_force import Configuration, load_configuration, reject_configuration
from cotenant_batch_resource_calculator.formulas.devices import DeviceTotals, device_totals

_CONFIG_DECODER = msgspec.json.Decoder(ConfigMap)


def read_configuration(event: Event, stored: ObjectStored | None) -> Configuration:
    """Return the configuration of the ConfigMap's last version; an object that is no ConfigMap rejects every section."""
    if stored is None:
        return load_configuration(None)
    try:
        config = _CONFIG_DECODER.decode(stored.object)
        return load_configuration(config.data, event.ref, config.metadata.uid)
    except msgspec.DecodeError as error:
        return reject_configuration(f"ConfigMap {SLO_CONFIG_NAMESPACE}/{SLO_CONFIG_NAME}: {error}", event.ref)


def read_devices(stored: ObjectStored) -> DeviceTotals:
    """Return the totals of a Device object; none, with the error, of an unreadable one."""
    try:
        return device_totals(decode_device(stored.object))
    except msgspec.DecodeError as error:
        return DeviceTotals(error=f"the node's Device object cannot be read: {error}")


def read_node(stored: ObjectStored | None, name: str) -> tuple[Node | None, str]:
    """Return the node object, or None and the error if it is unreadable."""
    if stored is None:
        return None, ""
    try:
        return decode_node(stored.object), ""
    except msgspec.DecodeError as error:
        return Node(metadata=ObjectMeta(name=name)), str(error)
