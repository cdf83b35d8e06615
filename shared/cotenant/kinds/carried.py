"""Kinds that are stored and shown as they are: only their metadata is checked and defaulted."""

from __future__ import annotations

from cotenant.api.definitions import Definition
from cotenant.api.kinds import Kind

RESERVATIONS = Kind("scheduling.koordinator.sh", "v1alpha1", "reservations", "Reservation", False)
DEVICES = Kind("scheduling.koordinator.sh", "v1alpha1", "devices", "Device", False)
POD_GROUPS = Kind("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup", True, ("pg",))
QUOTA_PROFILES = Kind("quota.koordinator.sh", "v1alpha1", "elasticquotaprofiles", "ElasticQuotaProfile", True, ("eqp",))

RESERVATION = Definition(RESERVATIONS, has_status=True)
DEVICE = Definition(DEVICES)
POD_GROUP = Definition(POD_GROUPS)
QUOTA_PROFILE = Definition(QUOTA_PROFILES)
