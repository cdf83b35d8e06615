"""Rules for ClusterColocationProfiles.

In: the typed view as it would be stored. Out: field errors. Koordinator accepts any profile, and its errors take effect when
a pod is created: an invalid selector then selects every pod, a wrong probability or a pair of classes that exclude
each other rejects them. Such a profile is refused here instead. Whether the patch fits a pod is checked when it is applied.
"""

from __future__ import annotations

from cotenant.api.objects.colocation_profile import ClusterColocationProfile, ClusterColocationProfileSpec, probability_percent
from cotenant.api.validation.fields import (
    FieldError,
    dns_subdomain,
    forbidden,
    invalid,
    label_value,
    labels,
    not_supported,
    qualified_name,
)
from cotenant.api.validation.metadata import selector_errors
from cotenant.domain.colocation import cannot_be_combined
from cotenant.domain.qos import QoSClass
from cotenant.model.tiers import PriorityClass

QOS_CLASSES = tuple(qos.value for qos in QoSClass if qos)


def colocation_profile_errors(profile: ClusterColocationProfile) -> list[FieldError]:
    """Check for valid selectors, valid names, and compatible classes."""
    spec = profile.spec
    return [
        *selector_errors("spec.namespaceSelector", spec.namespace_selector),
        *selector_errors("spec.selector", spec.selector),
        *_probability(spec),
        *labels("spec.labels", spec.labels),
        *(error for key in spec.annotations for error in qualified_name("spec.annotations", key.lower())),
        *_mapping("spec.labelKeysMapping", spec.label_keys_mapping, lower=False),
        *_mapping("spec.annotationKeysMapping", spec.annotation_keys_mapping, lower=True),
        *_suffixes(spec),
        *(dns_subdomain("spec.schedulerName", spec.scheduler_name) if spec.scheduler_name else ()),
        *_classes(spec),
    ]


def _probability(spec: ClusterColocationProfileSpec) -> list[FieldError]:
    try:
        probability_percent(spec.probability)
    except ValueError as error:
        return [invalid("spec.probability", spec.probability, str(error))]
    return []


def _mapping(field: str, mapping: dict[str, str], *, lower: bool) -> list[FieldError]:
    found: list[FieldError] = []
    for old, new in mapping.items():
        found += qualified_name(field, old.lower() if lower else old)
        found += qualified_name(f"{field}[{old}]", new.lower() if lower else new)
    return found


def _suffixes(spec: ClusterColocationProfileSpec) -> list[FieldError]:
    found: list[FieldError] = []
    for key, suffix in spec.label_suffixes.items():
        found += qualified_name("spec.labelSuffixes", key)
        # What is appended to a label's value must end as one does; its first character follows one.
        if label_value("", f"a{suffix}"):
            detail = "must end a label's value: alphanumeric characters, '-', '_' or '.', the last one alphanumeric"
            found.append(invalid(f"spec.labelSuffixes[{key}]", suffix, detail))
    return found


def _classes(spec: ClusterColocationProfileSpec) -> list[FieldError]:
    found: list[FieldError] = []
    if spec.priority_class_name:
        found += dns_subdomain("spec.priorityClassName", spec.priority_class_name)
    if spec.koordinator_priority is not None and not -(2**31) <= spec.koordinator_priority < 2**31:
        found.append(invalid("spec.koordinatorPriority", spec.koordinator_priority, "must be a 32-bit integer"))
    if not spec.qos_class:
        return found
    if spec.qos_class not in QOS_CLASSES:
        return [*found, not_supported("spec.qosClass", spec.qos_class, QOS_CLASSES)]
    tier = next((tier for tier in PriorityClass if tier and tier.value == spec.priority_class_name), None)
    if tier is not None and cannot_be_combined(QoSClass(spec.qos_class), tier):
        detail = f"every pod with qosClass {spec.qos_class} and priority class {tier.value} is refused; change one of them"
        found.append(forbidden("spec.priorityClassName", detail))
    return found
