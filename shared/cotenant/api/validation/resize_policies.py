"""A container's `resizePolicy`: whether it is restarted when its cpu or memory is changed in place.

In: the typed view of a pod. Out: field errors. Source: Kubernetes, validateResizePolicy.
"""

from __future__ import annotations

from cotenant.api.objects.pod import Container, Pod
from cotenant.api.validation.fields import FieldError, duplicate, invalid, not_supported

RESTART = "RestartContainer"
_RESOURCES = ("cpu", "memory")
_POLICIES = ("NotRequired", RESTART)


def resize_policy_errors(pod: Pod) -> list[FieldError]:
    """Each resource at most once, known values, and no restart in a pod that restarts nothing."""
    found: list[FieldError] = []
    for section, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            if container.resize_policy:
                found += _of_container(f"spec.{section}[{index}].resizePolicy", container, pod.spec.restart_policy)
    return found


def _of_container(path: str, container: Container, restart_policy: str) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, policy in enumerate(container.resize_policy):
        own = f"{path}[{index}]"
        if policy.resource_name not in _RESOURCES:
            found.append(not_supported(f"{own}.resourceName", policy.resource_name, _RESOURCES))
        elif policy.resource_name in seen:
            found.append(duplicate(f"{own}.resourceName", policy.resource_name))
        seen.add(policy.resource_name)
        if policy.restart_policy not in _POLICIES:
            found.append(not_supported(f"{own}.restartPolicy", policy.restart_policy, _POLICIES))
        elif restart_policy == "Never" and policy.restart_policy == RESTART:
            found.append(
                invalid(f"{own}.restartPolicy", policy.restart_policy, "must be 'NotRequired' when `restartPolicy` is 'Never'")
            )
    return found
