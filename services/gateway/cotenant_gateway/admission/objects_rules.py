"""The rules of the object's own kind."""

from __future__ import annotations

from cotenant.api.validation.fields import FieldError
from cotenant_gateway.admission.review import Review


def object_is_valid(review: Review) -> list[FieldError]:
    """The rules in the kind's file."""
    return review.definition.errors(review.view, review.stored_view)
