"""core/v1 PersistentVolume: its rules and columns. Source: Kubernetes' validation and printers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.storage import PersistentVolume, decode_volume
from cotenant.api.overlay import Overlay
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.api.validation.fields import FieldError, dns_subdomain, forbidden, not_supported, required
from cotenant.api.validation.pod_scheduling import node_term_errors
from cotenant.kinds.storage.rules import (
    RECLAIM_POLICIES,
    mode_errors,
    shown_modes,
    shown_storage,
    storage_errors,
)

VOLUMES = Kind("", "v1", "persistentvolumes", "PersistentVolume", False, ("pv",))


def volume_errors(volume: PersistentVolume, old: PersistentVolume | None = None) -> list[FieldError]:
    """A volume needs a capacity, access modes and a source; its node affinity is set once."""
    spec = volume.spec
    found = mode_errors("spec", spec.access_modes, spec.volume_mode)
    found += storage_errors("spec.capacity", spec.capacity)
    policy = spec.persistent_volume_reclaim_policy
    if policy and policy not in RECLAIM_POLICIES:
        found.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES))
    if spec.storage_class_name:
        found += dns_subdomain("spec.storageClassName", spec.storage_class_name)
    if spec.csi is not None:
        for field, value in (("driver", spec.csi.driver), ("volumeHandle", spec.csi.volume_handle)):
            if not value:
                found.append(required(f"spec.csi.{field}"))
    if spec.node_affinity is not None:
        path = "spec.nodeAffinity.required"
        if spec.node_affinity.required is None:
            found.append(required(path, "must specify required node constraints"))
        elif not spec.node_affinity.required.node_selector_terms:
            found.append(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
        else:
            found += node_term_errors(f"{path}.nodeSelectorTerms", spec.node_affinity.required.node_selector_terms)
    if old is not None:
        if old.spec.node_affinity is not None and old.spec.node_affinity != spec.node_affinity:
            found.append(forbidden("spec.nodeAffinity", "field is immutable, except for updating from beta label to GA"))
        if old.spec.volume_mode != spec.volume_mode:
            found.append(forbidden("spec.volumeMode", "field is immutable"))
        if old.spec.csi != spec.csi:
            found.append(forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"))
    return found


def phase_of(volume: PersistentVolume) -> str:
    """Return the phase that is shown: that of the status, else Bound where a claim has it (its reference has a uid)."""
    claim = volume.spec.claim_ref
    return volume.status.phase or ("Bound" if claim is not None and claim.uid else "Available")


def _composed(snapshot: Snapshot) -> Overlay:
    if snapshot.stored is None:
        return Overlay()
    volume = snapshot.view(decode_volume)
    assert isinstance(volume, PersistentVolume)
    return Overlay() if volume.status.phase else Overlay(status={"phase": raw(phase_of(volume))})



def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    volume = decode_volume(snapshot.document)
    claim = volume.spec.claim_ref
    return (
        snapshot.address.name,
        shown_storage(volume.spec.capacity),
        shown_modes(volume.spec.access_modes),
        volume.spec.persistent_volume_reclaim_policy or "Retain",
        "Terminating" if volume.metadata.deletion_timestamp is not None else phase_of(volume),
        f"{claim.namespace}/{claim.name}" if claim is not None else "",
        volume.class_name,
        volume.status.reason,
        age(volume.metadata.creation_timestamp, now),
    )


def _errors(new: Any, old: Callable[[], Any]) -> list[FieldError]:
    return volume_errors(new, old())


DEFINITION = KindDefinition(
    VOLUMES,
    decode=decode_volume,
    decode_when_folded=True,
    errors=_errors,
    compose=_composed,
    compose_document_alone=True,
    layout=Layout(
        (
            NAME,
            Column("Capacity"),
            Column("Access Modes"),
            Column("Reclaim Policy"),
            Column("Status"),
            Column("Claim"),
            Column("StorageClass"),
            Column("Reason"),
            AGE,
        ),
        _cells,
    ),
    has_status=True,
)
