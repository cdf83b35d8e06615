"""Rules that hold for every object: its names, labels, annotations, finalizers.

In: ObjectMeta and how the kind is named. Out: field errors. Source: Kubernetes `ValidateObjectMeta`.
"""

from __future__ import annotations

from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import LabelSelector, ObjectMeta
from cotenant.api.validation.fields import (
    FieldError,
    dns_label,
    dns_subdomain,
    forbidden,
    invalid,
    label_value,
    labels,
    not_supported,
    qualified_name,
    required,
)

MAX_ANNOTATION_BYTES = 256 * 1024
_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def metadata_errors(kind: Kind, meta: ObjectMeta) -> list[FieldError]:
    """Return the errors in the metadata of an object of this kind."""
    found: list[FieldError] = []
    if not meta.name:
        found.append(required("metadata.name", "name or generateName is required"))
    elif kind.label_names:
        found += dns_label("metadata.name", meta.name)
    else:
        found += dns_subdomain("metadata.name", meta.name)
    if kind.namespaced:
        found += dns_label("metadata.namespace", meta.namespace)
    elif meta.namespace:
        found.append(forbidden("metadata.namespace", "not allowed on this type"))
    if meta.labels:
        found += labels("metadata.labels", meta.labels)
    if meta.annotations:
        found += annotation_errors(meta.annotations)
    for index, finalizer in enumerate(meta.finalizers):
        found += qualified_name(f"metadata.finalizers[{index}]", finalizer)
    return found


def annotation_errors(annotations: dict[str, str]) -> list[FieldError]:
    """Annotation keys are qualified names in lower case; all together at most 256 KiB."""
    found: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        found += qualified_name("metadata.annotations", key.lower())
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATION_BYTES:
        found.append(invalid("metadata.annotations", f"{size} bytes", f"must have at most {MAX_ANNOTATION_BYTES} bytes"))
    return found


def selector_errors(field: str, selector: LabelSelector | None) -> list[FieldError]:
    """Return the errors of a LabelSelector; an absent one is valid."""
    if selector is None:
        return []
    found: list[FieldError] = []
    for key, value in selector.match_labels.items():
        found += qualified_name(f"{field}.matchLabels", key)
        found += label_value(f"{field}.matchLabels[{key}]", value)
    for index, expression in enumerate(selector.match_expressions):
        path = f"{field}.matchExpressions[{index}]"
        found += qualified_name(f"{path}.key", expression.key)
        if expression.operator not in _SELECTOR_OPERATORS:
            found.append(not_supported(f"{path}.operator", expression.operator, _SELECTOR_OPERATORS))
        elif expression.operator in ("In", "NotIn") and not expression.values:
            found.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif expression.operator in ("Exists", "DoesNotExist") and expression.values:
            found.append(forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
    return found
