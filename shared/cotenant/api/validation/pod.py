"""Rules for pods.

In: the typed view of a pod as it would be stored (and, for an update, as it is). Out: every field error, not only the
first. Source: Kubernetes `ValidatePod` for what concerns scheduling and running; other fields are stored
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from cotenant.api.objects.pod import Container, Pod
from cotenant.api.times import MOST_SECONDS, whole_seconds
from cotenant.api.validation.fields import (
    FieldError,
    dns_label,
    dns_subdomain,
    duplicate,
    forbidden,
    grace_period,
    invalid,
    not_found,
    not_supported,
    quantity,
    required,
)
from cotenant.api.validation.pod_scheduling import PREEMPTION_POLICIES, scheduling_errors
from cotenant.api.validation.process_runtime import process_runtime_errors
from cotenant.api.validation.resize_policies import resize_policy_errors
from cotenant.api.validation.resources import resource_errors
from cotenant.model.names import ANNOTATION_TTL_AFTER_FINISHED, RUNTIME_PROCESS

RESTART_POLICIES = ("Always", "OnFailure", "Never")
PROTOCOLS = ("TCP", "UDP", "SCTP")
RESERVED_ANNOTATION = "scheduling.koordinator.sh/reserve-pod"
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class _Named(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    mount_path: str = ""


def _required_spec(pod: Pod) -> list[FieldError]:
    spec = pod.spec
    found: list[FieldError] = []
    if not spec.containers:
        found.append(required("spec.containers"))
    if spec.restart_policy not in RESTART_POLICIES:
        found.append(not_supported("spec.restartPolicy", spec.restart_policy, RESTART_POLICIES))
    if spec.termination_grace_period_seconds is not None:
        found += grace_period("spec.terminationGracePeriodSeconds", spec.termination_grace_period_seconds)
    if spec.active_deadline_seconds is not None and not 1 <= spec.active_deadline_seconds < 2**31:
        found.append(invalid("spec.activeDeadlineSeconds", spec.active_deadline_seconds, "must be between 1 and 2147483647"))
    if spec.preemption_policy is not None and spec.preemption_policy not in PREEMPTION_POLICIES:
        found.append(not_supported("spec.preemptionPolicy", spec.preemption_policy, PREEMPTION_POLICIES))
    if spec.scheduler_name:
        found += dns_subdomain("spec.schedulerName", spec.scheduler_name)
    if spec.node_name:
        found += dns_subdomain("spec.nodeName", spec.node_name)
    for resource, amount in spec.overhead.items():
        found += quantity(f"spec.overhead[{resource}]", amount, resource=resource)
    return found


def _containers(pod: Pod) -> list[FieldError]:
    found: list[FieldError] = []
    names: set[str] = set()
    needs_image = pod.spec.runtime_class_name != RUNTIME_PROCESS
    volumes = {_named(volume).name for volume in pod.spec.volumes}
    for section, containers in (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers)):
        for index, container in enumerate(containers):
            path = f"spec.{section}[{index}]"
            if not container.name:
                found.append(required(f"{path}.name"))
            else:
                found += dns_label(f"{path}.name", container.name)
                if container.name in names:
                    found.append(duplicate(f"{path}.name", container.name))
                names.add(container.name)
            if needs_image and not container.image.strip():
                found.append(required(f"{path}.image"))
            found += _container(path, container, volumes)
    return found


def _container(path: str, container: Container, volumes: set[str]) -> list[FieldError]:
    found = resource_errors(f"{path}.resources", container.resources)
    for index, variable in enumerate(container.env):
        if not variable.name:
            found.append(required(f"{path}.env[{index}].name"))
        elif not _ENV_NAME.fullmatch(variable.name):
            detail = "must consist of letters, digits, '_', '-' or '.', and must not start with a digit"
            found.append(invalid(f"{path}.env[{index}].name", variable.name, detail))
    for index, port in enumerate(container.ports):
        where = f"{path}.ports[{index}]"
        if not 1 <= port.container_port <= 65535:
            found.append(invalid(f"{where}.containerPort", port.container_port, "must be between 1 and 65535, inclusive"))
        if not 0 <= port.host_port <= 65535:
            found.append(invalid(f"{where}.hostPort", port.host_port, "must be between 1 and 65535, inclusive"))
        if port.protocol not in PROTOCOLS:
            found.append(not_supported(f"{where}.protocol", port.protocol, PROTOCOLS))
    for index, mount in enumerate(container.volume_mounts):
        named = _named(mount)
        if not named.name:
            found.append(required(f"{path}.volumeMounts[{index}].name"))
        elif named.name not in volumes:
            found.append(not_found(f"{path}.volumeMounts[{index}].name", named.name))
        if not named.mount_path:
            found.append(required(f"{path}.volumeMounts[{index}].mountPath"))
    return found


def _named(item: msgspec.Raw) -> _Named:
    try:
        return msgspec.json.decode(item, type=_Named)
    except msgspec.MsgspecError:
        return _Named()


def _volumes(pod: Pod) -> list[FieldError]:
    found: list[FieldError] = []
    names: set[str] = set()
    for index, volume in enumerate(pod.spec.volumes):
        name = _named(volume).name
        if not name:
            found.append(required(f"spec.volumes[{index}].name"))
            continue
        found += dns_label(f"spec.volumes[{index}].name", name)
        if name in names:
            found.append(duplicate(f"spec.volumes[{index}].name", name))
        names.add(name)
    return found


def _runtime(pod: Pod) -> list[FieldError]:
    return process_runtime_errors(pod) if pod.spec.runtime_class_name == RUNTIME_PROCESS else []


def _reserved_annotation(pod: Pod) -> list[FieldError]:
    if RESERVED_ANNOTATION not in pod.metadata.annotations:
        return []
    return [forbidden(f"metadata.annotations[{RESERVED_ANNOTATION}]", "is set by the scheduler only")]


def _ttl_after_finished(pod: Pod) -> list[FieldError]:
    text = pod.metadata.annotations.get(ANNOTATION_TTL_AFTER_FINISHED)
    if text is None or whole_seconds(text) is not None:
        return []
    field = f"metadata.annotations[{ANNOTATION_TTL_AFTER_FINISHED}]"
    return [invalid(field, text, f"must be a whole number of seconds from 0 to {MOST_SECONDS}")]


POD_CHECKS: tuple[Callable[[Pod], list[FieldError]], ...] = (
    _required_spec,
    _containers,
    _volumes,
    scheduling_errors,
    _runtime,
    _reserved_annotation,
    _ttl_after_finished,
    resize_policy_errors,
)
"""Checks of a pod by itself, in order."""
