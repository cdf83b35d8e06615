"""core/v1 PersistentVolumeClaim: its rules and columns. Source: Kubernetes' validation and printers.

Nothing here binds a claim: whoever does writes `spec.volumeName` and the status. A claim that names a volume is shown as Bound,
another one as Pending, unless its status says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.storage import PersistentVolumeClaim, decode_claim, storage_of
from cotenant.api.overlay import Overlay
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.api.validation.fields import FieldError, dns_subdomain, forbidden
from cotenant.api.validation.metadata import selector_errors
from cotenant.kinds.storage.rules import mode_errors, shown_modes, shown_storage, storage_errors

CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, ("pvc",))


def claim_errors(claim: PersistentVolumeClaim, old: PersistentVolumeClaim | None = None) -> list[FieldError]:
    """What is claimed never changes but for more storage; the volume's name is set once."""
    spec = claim.spec
    found = mode_errors("spec", spec.access_modes, spec.volume_mode)
    found += storage_errors("spec.resources.requests", spec.resources.requests)
    found += selector_errors("spec.selector", spec.selector) if spec.selector is not None else []
    if spec.volume_name:
        found += dns_subdomain("spec.volumeName", spec.volume_name)
    if spec.storage_class_name:
        found += dns_subdomain("spec.storageClassName", spec.storage_class_name)
    if old is None:
        return found
    if _fixed(claim) != _fixed(old) or (old.spec.volume_name and old.spec.volume_name != spec.volume_name):
        found.append(
            forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            )
        )
    elif storage_of(spec.resources.requests) < storage_of(old.spec.resources.requests):
        found.append(forbidden("spec.resources.requests.storage", "field can not be less than previous value"))
    return found


def _fixed(claim: PersistentVolumeClaim) -> tuple[object, ...]:
    spec = claim.spec
    return spec.access_modes, spec.selector, spec.storage_class_name, spec.volume_mode


def phase_of(claim: PersistentVolumeClaim) -> str:
    """Return the phase that is shown."""
    return claim.status.phase or ("Bound" if claim.spec.volume_name else "Pending")


def _composed(snapshot: Snapshot) -> Overlay:
    if snapshot.stored is None:
        return Overlay()
    claim = snapshot.view(decode_claim)
    assert isinstance(claim, PersistentVolumeClaim)
    return Overlay() if claim.status.phase else Overlay(status={"phase": raw(phase_of(claim))})


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    claim = decode_claim(snapshot.document)
    bound = bool(claim.spec.volume_name)
    return (
        snapshot.address.name,
        "Terminating" if claim.metadata.deletion_timestamp is not None else phase_of(claim),
        claim.spec.volume_name,
        shown_storage(claim.status.capacity) if bound else "",
        shown_modes(claim.status.access_modes) if bound else "",
        claim.class_name,
        age(claim.metadata.creation_timestamp, now),
    )


def _errors(new: Any, old: Callable[[], Any]) -> list[FieldError]:
    return claim_errors(new, old())


DEFINITION = KindDefinition(
    CLAIMS,
    decode=decode_claim,
    decode_when_folded=True,
    errors=_errors,
    compose=_composed,
    compose_document_alone=True,
    layout=Layout(
        (
            NAME,
            Column("Status"),
            Column("Volume"),
            Column("Capacity"),
            Column("Access Modes"),
            Column("StorageClass"),
            AGE,
        ),
        _cells,
    ),
    has_status=True,
)
