"""Classes that a pod names must exist, and must not contradict the pod's own fields."""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.api.objects.pod import Pod
from cotenant.api.validation.fields import FieldError, forbidden, invalid, not_found
from cotenant.domain.qos import priority_default
from cotenant.model.quantities import QuantityError, Scalar, parse_nanos
from cotenant_gateway.admission.pods.priority import find_priority_class
from cotenant_gateway.admission.pods.runtime_class import find_runtime_class
from cotenant_gateway.admission.pods.tier_resources import tier_amounts
from cotenant_gateway.admission.review import Review


def unresolved_classes(review: Review) -> list[FieldError]:
    """PriorityClass and RuntimeClass of a pod."""
    pod = review.view
    assert isinstance(pod, Pod)
    priority, runtime = pod.spec.priority_class_name, pod.spec.runtime_class_name
    errors = _priority(review, pod, priority) if priority else []
    return [*errors, *_runtime(review, pod, runtime)] if runtime else errors


def _priority(review: Review, pod: Pod, name: str) -> list[FieldError]:
    found = find_priority_class(review.objects, name)
    if found is None:
        return [not_found("spec.priorityClassName", name, "no PriorityClass with this name was found")]
    errors: list[FieldError] = []
    if pod.spec.priority != found.value:
        detail = f"must not differ from {found.value}, the value of PriorityClass {name}; leave it out"
        errors.append(invalid("spec.priority", pod.spec.priority, detail))
    if pod.spec.preemption_policy not in (None, found.preemption_policy):
        detail = f"must not differ from {found.preemption_policy}, the policy of PriorityClass {name}; leave it out"
        errors.append(invalid("spec.preemptionPolicy", pod.spec.preemption_policy, detail))
    return errors


def _runtime(review: Review, pod: Pod, name: str) -> list[FieldError]:
    runtime = find_runtime_class(review.objects, name)
    if runtime is None:
        return [not_found("spec.runtimeClassName", name, "no RuntimeClass with this name was found")]
    errors: list[FieldError] = []
    selector = runtime.scheduling.node_selector if runtime.scheduling is not None else {}
    for key, value in sorted(selector.items()):
        if pod.spec.node_selector.get(key, value) != value:
            detail = f"conflicts with {key}={value}, which RuntimeClass {name} requires"
            errors.append(invalid(f"spec.nodeSelector[{key}]", pod.spec.node_selector[key], detail))
    fixed = runtime.overhead.pod_fixed if runtime.overhead is not None else {}
    try:
        # A colocation profile translates the class' overhead with the rest of the pod.
        allowed = (_nanos(fixed), _nanos(tier_amounts(fixed, priority_default(pod))))
        given = _nanos(pod.spec.overhead)
    except QuantityError:
        return errors
    if given not in allowed:
        errors.append(forbidden("spec.overhead", f"must be the overhead of RuntimeClass {name}; leave it out"))
    return errors


def _nanos(amounts: Mapping[str, Scalar]) -> dict[str, int]:
    return {resource: parse_nanos(amount) for resource, amount in amounts.items()}
