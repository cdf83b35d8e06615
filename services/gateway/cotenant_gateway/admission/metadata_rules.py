"""Metadata of every object: names, labels, annotations, owners."""

from __future__ import annotations

from cotenant.api.validation.fields import FieldError, required
from cotenant.api.validation.metadata import metadata_errors
from cotenant_gateway.admission.review import Review


def metadata_is_valid(review: Review) -> list[FieldError]:
    """Names are DNS names, labels are labels; an owner reference identifies its object."""
    meta = review.view.metadata
    found = metadata_errors(review.definition.kind, meta)
    for index, owner in enumerate(meta.owner_references):
        for field, value in (("apiVersion", owner.api_version), ("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
            if not value:
                found.append(required(f"metadata.ownerReferences[{index}].{field}", "must not be empty"))
    return found
