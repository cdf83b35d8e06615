"""The limits of the process runtime: plain processes of the node, no image, no mounts.

In: the typed view of a pod with `runtimeClassName: process`. Out: field errors for admission, so that no user
learns on the node that a volume was ignored; and the value of the few `fieldRef`s that need no runtime of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from cotenant.api.objects.pod import Container, Pod, SecurityContext
from cotenant.api.validation.fields import FieldError, forbidden, invalid, not_supported, required

FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "metadata.labels['<KEY>']",
    "metadata.annotations['<KEY>']",
)
"""The fieldPaths that an environment variable may refer to."""

_INDEXED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_PLAIN = frozenset(FIELD_PATHS[:4])
_MAX_ID = 2**31 - 1


class _FieldRef(msgspec.Struct, frozen=True, rename="camel"):
    field_path: str = ""


class _ValueFrom(msgspec.Struct, frozen=True, rename="camel"):
    field_ref: _FieldRef | None = None


def field_path(value_from: msgspec.Raw) -> str | None:
    """Return the fieldPath of an env `valueFrom`, None where it is another source (secret, config map, resource)."""
    try:
        source = msgspec.json.decode(value_from, type=_ValueFrom)
    except msgspec.MsgspecError:
        return None
    return source.field_ref.field_path if source.field_ref is not None else None


def field_path_known(path: str) -> bool:
    """True where `field_value` has an answer."""
    return path in _PLAIN or _INDEXED.fullmatch(path) is not None


def field_value(path: str, pod: Pod, node: str) -> str:
    """Return the value of a fieldPath for a pod on a node; a missing label or annotation is empty."""
    indexed = _INDEXED.fullmatch(path)
    if indexed is not None:
        mapping: Mapping[str, str] = (
            pod.metadata.labels if indexed.group(1) == "labels" else pod.metadata.annotations
        )
        return mapping.get(indexed.group(2), "")
    return {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": node,
    }.get(path, "")


def root_fields(pod: Pod) -> list[str]:
    """Return the fields by which containers of a pod run as root."""
    found: list[str] = []
    of_pod = pod.spec.security_context.run_as_user if pod.spec.security_context is not None else None
    for index, container in enumerate(pod.spec.containers):
        own = container.security_context.run_as_user if container.security_context is not None else None
        if own == 0:
            found.append(f"spec.containers[{index}].securityContext.runAsUser")
        elif own is None and of_pod == 0 and "spec.securityContext.runAsUser" not in found:
            found.append("spec.securityContext.runAsUser")
    return found


def process_runtime_errors(pod: Pod) -> list[FieldError]:
    """Return all fields of the pod that the process runtime does not support."""
    found: list[FieldError] = []
    for index, _ in enumerate(pod.spec.init_containers):
        found.append(forbidden(f"spec.initContainers[{index}]", "the process runtime has no init containers"))
    for index, _ in enumerate(pod.spec.volumes):
        found.append(forbidden(f"spec.volumes[{index}]", "the process runtime cannot mount volumes"))
    found += _security_errors("spec.securityContext", pod.spec.security_context)
    for index, container in enumerate(pod.spec.containers):
        found += _container_errors(f"spec.containers[{index}]", container)
    return found


def _container_errors(path: str, container: Container) -> list[FieldError]:
    found: list[FieldError] = []
    if not container.command:
        found.append(required(f"{path}.command", "the process runtime ignores images, so the command must be stated"))
    elif not container.command[0]:
        found.append(invalid(f"{path}.command[0]", "", "must name a program"))
    for number, variable in enumerate(container.env):
        if not bytes(variable.value_from) or bytes(variable.value_from) == b"null":
            continue
        reference = field_path(variable.value_from)
        where = f"{path}.env[{number}].valueFrom"
        if reference is None:
            found.append(forbidden(where, "the process runtime knows no secrets, config maps or resource fields"))
        elif not field_path_known(reference):
            found.append(not_supported(f"{where}.fieldRef.fieldPath", reference, FIELD_PATHS))
    for number, _ in enumerate(container.env_from):
        found.append(forbidden(f"{path}.envFrom[{number}]", "the process runtime knows no secrets or config maps"))
    for number, _ in enumerate(container.volume_mounts):
        found.append(forbidden(f"{path}.volumeMounts[{number}]", "the process runtime cannot mount volumes"))
    for name, raw in (
        ("livenessProbe", container.liveness_probe),
        ("readinessProbe", container.readiness_probe),
        ("startupProbe", container.startup_probe),
    ):
        if bytes(raw) not in (b"", b"null"):
            found.append(forbidden(f"{path}.{name}", "the process runtime does not probe"))
    if bytes(container.lifecycle) not in (b"", b"null"):
        found.append(forbidden(f"{path}.lifecycle", "the process runtime has no lifecycle hooks"))
    found += _security_errors(f"{path}.securityContext", container.security_context)
    return found


def _security_errors(path: str, context: SecurityContext | None) -> list[FieldError]:
    if context is None:
        return []
    found: list[FieldError] = []
    if context.privileged:
        found.append(forbidden(f"{path}.privileged", "the process runtime always sets no_new_privs"))
    if context.allow_privilege_escalation:
        found.append(forbidden(f"{path}.allowPrivilegeEscalation", "the process runtime always sets no_new_privs"))
    if context.read_only_root_filesystem:
        detail = "containers of the process runtime share the node's root filesystem"
        found.append(forbidden(f"{path}.readOnlyRootFilesystem", detail))
    if context.capabilities is not None and context.capabilities.add:
        detail = "programs of the process runtime have no capabilities: their bounding set is empty"
        found.append(forbidden(f"{path}.capabilities.add", detail))
    if context.supplemental_groups:
        found.append(forbidden(f"{path}.supplementalGroups", "the process runtime drops supplementary groups"))
    if context.fs_group is not None:
        found.append(forbidden(f"{path}.fsGroup", "the process runtime has no volumes"))
    for name, raw in (
        ("sysctls", context.sysctls),
        ("seLinuxOptions", context.se_linux_options),
        ("appArmorProfile", context.app_armor_profile),
        ("windowsOptions", context.windows_options),
    ):
        if bytes(raw) not in (b"", b"null", b"[]"):
            found.append(forbidden(f"{path}.{name}", "the process runtime cannot do that"))
    profile = context.seccomp_profile.type if context.seccomp_profile is not None else ""
    if profile not in ("", "Unconfined"):
        found.append(not_supported(f"{path}.seccompProfile.type", profile, ["Unconfined"]))
    for name, value in (("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group)):
        if value is not None and not 0 <= value <= _MAX_ID:
            found.append(invalid(f"{path}.{name}", value, f"must be between 0 and {_MAX_ID}, inclusive"))
    if context.run_as_non_root and context.run_as_user == 0:
        found.append(invalid(f"{path}.runAsUser", 0, "must not be 0 where runAsNonRoot is true"))
    return found
