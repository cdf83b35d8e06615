"""Configuration of reservations."""

from __future__ import annotations

import msgspec


class ReservationArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Configuration of reservations. Resources that are ignored, extended ones only, by name and by group."""

    enable_preemption: bool = False
    """A reservation that no node takes preempts pods of a lower priority."""
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
