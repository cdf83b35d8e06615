"""Rules for a pod's constraints on nodes and other pods: selectors, tolerations, affinity, spread, preemption, hints.

In: the typed view of a pod. Out: every field error. Source: Kubernetes `ValidatePod`; Koordinator's label of the preemption
policy and annotation of the scheduling hint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.pod import (
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    Toleration,
)
from cotenant.api.objects.scheduling_hint import SchedulingHintError, scheduling_hint
from cotenant.api.validation.fields import (
    FieldError,
    dns_subdomain,
    forbidden,
    invalid,
    labels,
    not_supported,
    qualified_name,
    required,
)
from cotenant.model.names import LABEL_PREEMPTION_POLICY, LABEL_SCHEDULER_NAME

TOLERATION_OPERATORS = ("Equal", "Exists")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def scheduling_errors(pod: Pod) -> list[FieldError]:
    """Return the errors in a pod's constraints on nodes and other pods."""
    spec = pod.spec
    found = labels("spec.nodeSelector", spec.node_selector) if spec.node_selector else []
    for index, toleration in enumerate(spec.tolerations):
        found += toleration_errors(f"spec.tolerations[{index}]", toleration)
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is not None:
        path = "spec.affinity.nodeAffinity"
        if affinity.required is not None:
            path = f"{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
            if not affinity.required.node_selector_terms:
                found.append(required(path, "must have at least one node selector term"))
            found += node_term_errors(path, affinity.required.node_selector_terms)
        for index, preferred in enumerate(affinity.preferred):
            where = f"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
            if not 1 <= preferred.weight <= 100:
                found.append(invalid(f"{where}.weight", preferred.weight, "must be in the range 1-100"))
            found += node_term_errors(f"{where}.preference", [preferred.preference], indexed=False)
    for section, terms in _other_pods(spec):
        for index, weighted in enumerate(terms.preferred):
            where = f"spec.affinity.{section}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
            if not 1 <= weighted.weight <= 100:
                found.append(invalid(f"{where}.weight", weighted.weight, "must be in the range 1-100"))
            found += _label_keys(f"{where}.podAffinityTerm", weighted.pod_affinity_term)
    for section, terms in _other_pods(spec):
        for index, term in enumerate(terms.required):
            where = f"spec.affinity.{section}.requiredDuringSchedulingIgnoredDuringExecution[{index}]"
            found += _label_keys(where, term)
    for index, spread in enumerate(spec.topology_spread_constraints):
        path = f"spec.topologySpreadConstraints[{index}]"
        if spread.max_skew <= 0:
            found.append(invalid(f"{path}.maxSkew", spread.max_skew, "must be greater than zero"))
        if spread.min_domains is not None and spread.min_domains <= 0:
            found.append(invalid(f"{path}.minDomains", spread.min_domains, "must be greater than zero"))
        if not spread.topology_key:
            found.append(required(f"{path}.topologyKey", "can not be empty"))
        if spread.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
            found.append(
                not_supported(f"{path}.whenUnsatisfiable", spread.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway"))
            )
        found += _merged_keys(f"{path}.matchLabelKeys", spread.match_label_keys, spread.label_selector)
    scheduler = pod.metadata.labels.get(LABEL_SCHEDULER_NAME)
    if scheduler:
        found += dns_subdomain(f"metadata.labels[{LABEL_SCHEDULER_NAME}]", scheduler)
    return [*found, *_preemption_policy(pod), *_hint(pod)]


def _preemption_policy(pod: Pod) -> list[FieldError]:
    policy = pod.metadata.labels.get(LABEL_PREEMPTION_POLICY)
    if policy is None or policy in PREEMPTION_POLICIES:
        return []
    return [not_supported(f"metadata.labels[{LABEL_PREEMPTION_POLICY}]", policy, PREEMPTION_POLICIES)]


def _hint(pod: Pod) -> list[FieldError]:
    try:
        scheduling_hint(pod.metadata.annotations)
    except SchedulingHintError as error:
        return [invalid(f"metadata.annotations[{error.annotation}]", error.text, str(error))]
    return []


def _label_keys(path: str, term: PodAffinityTerm) -> list[FieldError]:
    """Errors in the label keys that a term about other pods adds to its selector."""
    both = [
        invalid(f"{path}.matchLabelKeys[{index}]", key, "exists in both matchLabelKeys and mismatchLabelKeys")
        for index, key in enumerate(term.match_label_keys)
        if key in term.mismatch_label_keys
    ]
    return [
        *_merged_keys(f"{path}.matchLabelKeys", term.match_label_keys, term.label_selector),
        *_merged_keys(f"{path}.mismatchLabelKeys", term.mismatch_label_keys, term.label_selector),
        *both,
    ]


def _merged_keys(path: str, keys: Sequence[str], selector: LabelSelector | None) -> list[FieldError]:
    if not keys:
        return []
    if selector is None:
        return [forbidden(path, "must not be specified when labelSelector is not set")]
    selected = {*selector.match_labels, *(expression.key for expression in selector.match_expressions)}
    found: list[FieldError] = []
    for index, key in enumerate(keys):
        found += qualified_name(f"{path}[{index}]", key)
        if key in selected:
            found.append(invalid(f"{path}[{index}]", key, f"exists in both {path.rpartition('.')[2]} and labelSelector"))
    return found


def _other_pods(spec: PodSpec) -> Iterator[tuple[str, PodAffinity]]:
    """Yield the terms about other pods, by the name of their section."""
    affinity = spec.affinity
    if affinity is not None:
        for section, terms in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
            if terms is not None:
                yield section, terms


def node_term_errors(path: str, terms: Sequence[NodeSelectorTerm], *, indexed: bool = True) -> list[FieldError]:
    """Return the errors in terms about nodes."""
    found: list[FieldError] = []
    for number, term in enumerate(terms):
        where = f"{path}[{number}]" if indexed else path
        for index, expression in enumerate(term.match_expressions):
            at = f"{where}.matchExpressions[{index}]"
            found += qualified_name(f"{at}.key", expression.key)
            if expression.operator not in NODE_OPERATORS:
                found.append(not_supported(f"{at}.operator", expression.operator, NODE_OPERATORS))
            elif expression.operator in ("In", "NotIn") and not expression.values:
                found.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
            elif expression.operator in ("Gt", "Lt") and len(expression.values) != 1:
                found.append(required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
            elif expression.operator in ("Exists", "DoesNotExist") and expression.values:
                found.append(forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
    return found


def toleration_errors(path: str, toleration: Toleration) -> list[FieldError]:
    """Return the errors of one toleration."""
    found: list[FieldError] = []
    if toleration.key:
        found += qualified_name(f"{path}.key", toleration.key)
    elif toleration.operator != "Exists":
        found.append(invalid(f"{path}.operator", toleration.operator, "operator must be Exists when `key` is empty"))
    if toleration.operator not in ("", *TOLERATION_OPERATORS):
        found.append(not_supported(f"{path}.operator", toleration.operator, TOLERATION_OPERATORS))
    if toleration.operator == "Exists" and toleration.value:
        found.append(invalid(f"{path}.value", toleration.value, "value must be empty when `operator` is 'Exists'"))
    if toleration.effect and toleration.effect not in TAINT_EFFECTS:
        found.append(not_supported(f"{path}.effect", toleration.effect, TAINT_EFFECTS))
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(invalid(f"{path}.effect", toleration.effect, detail))
    return found
