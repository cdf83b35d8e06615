"""A RuntimeClass' node selector, tolerations and overhead are merged into its pods, as Kubernetes' admission does."""

from __future__ import annotations

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.policies import RuntimeClass
from cotenant.api.splices import Members, elements, is_array, member_object, members, raw
from cotenant.kinds.runtime_classes import RUNTIME_CLASSES, decode_runtime_class
from cotenant_gateway.admission.review import Mutation, ObjectSource, Review


def find_runtime_class(objects: ObjectSource, name: str) -> RuntimeClass | None:
    """Return a RuntimeClass by name."""
    found = objects.get(RUNTIME_CLASSES, "", name)
    if found is None or found.stored is None:
        return None
    view = found.view(decode_runtime_class)
    assert isinstance(view, RuntimeClass)
    return view


def merge_runtime_class(review: Review) -> Mutation | None:
    """Add what the class requires; the validator reports conflicting selectors."""
    pod = review.view
    if not isinstance(pod, Pod) or not pod.spec.runtime_class_name:
        return None
    runtime = find_runtime_class(review.objects, pod.spec.runtime_class_name)
    if runtime is None:
        return None
    top = members(review.document)
    spec = member_object(top, "spec")
    changed: list[str] = []
    if runtime.scheduling is not None:
        if _merge_selector(spec, pod, runtime.scheduling.node_selector):
            changed.append("node selector")
        added = [item for item in runtime.scheduling.tolerations if item not in pod.spec.tolerations]
        if added:
            present = elements(spec["tolerations"]) if "tolerations" in spec and is_array(spec["tolerations"]) else []
            spec["tolerations"] = raw([*present, *(raw(_toleration(item)) for item in added)])
            changed.append("tolerations")
    if runtime.overhead is not None and runtime.overhead.pod_fixed and not pod.spec.overhead:
        spec["overhead"] = raw(runtime.overhead.pod_fixed)
        changed.append("overhead")
    if not changed:
        return None
    top["spec"] = raw(spec)
    return Mutation(raw(top), (f"{', '.join(changed)} from RuntimeClass {runtime.metadata.name}",))


def _merge_selector(spec: Members, pod: Pod, wanted: dict[str, str]) -> bool:
    missing = {key: value for key, value in wanted.items() if key not in pod.spec.node_selector}
    if missing:
        selector = member_object(spec, "nodeSelector")
        selector.update((key, raw(value)) for key, value in missing.items())
        spec["nodeSelector"] = raw(selector)
    return bool(missing)


def _toleration(item: object) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(item)
    return {name: value for name, value in fields.items() if value not in ("", None)}
