"""Kinds that are stored and shown as they are: only their metadata is checked and defaulted."""

from __future__ import annotations

from cotenant.api.definitions import Definition
from cotenant.api.kinds import Kind

RESERVATIONS = Kind("scheduling.koordinator.sh", "v1alpha1", "reservations", "Reservation", False)

RESERVATION = Definition(RESERVATIONS, has_status=True)
