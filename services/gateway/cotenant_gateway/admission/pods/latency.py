"""A pod's annotations `cotenant.io/latency-endpoint` and `cotenant.io/latency-goal` can be read."""

from __future__ import annotations

from cotenant.api.objects.pod import Pod
from cotenant.api.validation.fields import FieldError, invalid
from cotenant.domain.service_latency import latency_annotation_errors
from cotenant_gateway.admission.review import Review


def latency_annotations_are_valid(review: Review) -> list[FieldError]:
    """Errors by annotation."""
    assert isinstance(review.view, Pod)
    wrong = latency_annotation_errors(review.view.metadata.annotations)
    return [invalid(f"metadata.annotations[{name}]", value, why) for name, value, why in wrong]
