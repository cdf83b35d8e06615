"""What claims and volumes have in common: access modes, volume modes, amounts, and how they are printed.

Source: Kubernetes' validation and printers of the storage kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.api.objects.storage import STORAGE, storage_of
from cotenant.api.validation.fields import FieldError, invalid, not_supported, quantity, required
from cotenant.model.quantities import Scalar

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_SHORT = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def mode_errors(path: str, access_modes: Sequence[str], volume_mode: str | None) -> list[FieldError]:
    """At least one access mode; ReadWriteOncePod is the only one where it is given."""
    found: list[FieldError] = []
    if not access_modes:
        found.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    for index, mode in enumerate(access_modes):
        if mode not in ACCESS_MODES:
            found.append(not_supported(f"{path}.accessModes[{index}]", mode, ACCESS_MODES))
    if "ReadWriteOncePod" in access_modes and len(set(access_modes)) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        found.append(invalid(f"{path}.accessModes", ", ".join(access_modes), detail))
    if volume_mode is not None and volume_mode not in VOLUME_MODES:
        found.append(not_supported(f"{path}.volumeMode", volume_mode, VOLUME_MODES))
    return found


def storage_errors(path: str, amounts: Mapping[str, Scalar]) -> list[FieldError]:
    """The storage that is claimed or offered is above 0."""
    if STORAGE not in amounts:
        return [required(f"{path}[{STORAGE}]")]
    found = quantity(f"{path}[{STORAGE}]", amounts[STORAGE])
    if not found and storage_of(amounts) <= 0:
        found.append(invalid(f"{path}[{STORAGE}]", amounts[STORAGE], "must be greater than zero"))
    return found


def shown_modes(access_modes: Sequence[str]) -> str:
    """Return access modes as kubectl prints them: `RWO,RWX`."""
    return ",".join(_SHORT.get(mode, mode) for mode in dict.fromkeys(access_modes))


def shown_storage(amounts: Mapping[str, Scalar]) -> str:
    """Return the storage as it was written."""
    return str(amounts.get(STORAGE, ""))
