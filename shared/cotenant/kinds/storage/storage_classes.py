"""storage.k8s.io/v1 StorageClass: its rules and columns. Source: Kubernetes' validation and printers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.storage import BIND_MODE_NOW, BIND_MODE_WAIT, StorageClass, decode_storage_class
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, forbidden, not_supported, qualified_name, required

STORAGE_CLASSES = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, ("sc",))
BINDING_MODES = (BIND_MODE_NOW, BIND_MODE_WAIT)


def class_errors(found_class: StorageClass, old: StorageClass | None = None) -> list[FieldError]:
    """A class names its provisioner; what volumes are made by never changes."""
    found = [] if found_class.provisioner else [required("provisioner")]
    if found_class.provisioner:
        found += qualified_name("provisioner", found_class.provisioner.lower())
    if found_class.reclaim_policy not in ("Delete", "Retain"):
        found.append(not_supported("reclaimPolicy", found_class.reclaim_policy, ("Delete", "Retain")))
    if found_class.volume_binding_mode not in BINDING_MODES:
        found.append(not_supported("volumeBindingMode", found_class.volume_binding_mode, BINDING_MODES))
    for number, term in enumerate(found_class.allowed_topologies):
        for index, expression in enumerate(term.match_label_expressions):
            path = f"allowedTopologies[{number}].matchLabelExpressions[{index}]"
            found += qualified_name(f"{path}.key", expression.key)
            if not expression.values:
                found.append(required(f"{path}.values"))
    if old is not None:
        for field, new_value, old_value in (
            ("parameters", found_class.parameters, old.parameters),
            ("provisioner", found_class.provisioner, old.provisioner),
            ("reclaimPolicy", found_class.reclaim_policy, old.reclaim_policy),
            ("volumeBindingMode", found_class.volume_binding_mode, old.volume_binding_mode),
        ):
            if new_value != old_value:
                found.append(forbidden(field, f"updates to {field} are forbidden."))
    return found


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = decode_storage_class(snapshot.document)
    return (
        f"{snapshot.address.name} (default)" if shown.is_default else snapshot.address.name,
        shown.provisioner,
        shown.reclaim_policy,
        shown.volume_binding_mode,
        shown.allow_volume_expansion,
        age(shown.metadata.creation_timestamp, now),
    )


def _errors(new: Any, old: Callable[[], Any]) -> list[FieldError]:
    return class_errors(new, old())


DEFINITION = KindDefinition(
    STORAGE_CLASSES,
    decode=decode_storage_class,
    errors=_errors,
    layout=Layout(
        (
            NAME,
            Column("Provisioner"),
            Column("ReclaimPolicy"),
            Column("VolumeBindingMode"),
            Column("AllowVolumeExpansion", "boolean"),
            AGE,
        ),
        _cells,
    ),
)
