"""The rules of the object's own kind."""

from __future__ import annotations

from cotenant.api.validation.fields import FieldError
from cotenant_gateway.admission.review import Review


def object_is_valid(review: Review) -> list[FieldError]:
    """What the kind's file says of the object by itself."""
    return review.definition.errors(review.view, review.stored_view)
