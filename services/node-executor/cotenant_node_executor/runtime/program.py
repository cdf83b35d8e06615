"""A container's program: arguments, environment, user, working directory.

In: the pod's manifest and the node's name. Out: the document of the launching step. `$(NAME)` in command, args and values
is replaced as in Kubernetes (`$$(NAME)` escapes, unknown names stay). The executor's own environment is not passed on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from cotenant.api.objects.pod import Container, Pod
from cotenant.api.validation.process_runtime import field_path, field_value

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOBODY = 65534
PRIVATE_BYTES = 64 << 20
"""Of each private folder for temporary files."""

_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")


class Program(Struct, frozen=True):
    """The document that the launching step reads."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    uid: int
    gid: int
    procs: list[str]
    pid_file: str
    error_file: str
    oom_score_adj: int
    private_bytes: int


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value; `$$` is a literal `$`."""

    def replacement(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        return values.get(match.group(1), match.group(0))

    return _REFERENCE.sub(replacement, text)


def environment(pod: Pod, container: Container, node: str) -> dict[str, str]:
    """The program's environment: PATH, HOSTNAME and HOME unless the manifest sets them, then its variables in order."""
    values: dict[str, str] = {}
    for variable in container.env:
        reference = field_path(variable.value_from) if bytes(variable.value_from) else None
        if reference is not None:
            values[variable.name] = field_value(reference, pod, node)
        else:
            values[variable.name] = expand(variable.value, values)
    return {"PATH": DEFAULT_PATH, "HOSTNAME": pod.metadata.name, "HOME": "/", **values}


def user_and_group(pod: Pod, container: Container, own: int = NOBODY) -> tuple[int, int]:
    """The user and group to run as: the container's, else the pod's, else `own`, which no other pod has; a group follows its
    user."""
    user: int | None = None
    group: int | None = None
    for context in (container.security_context, pod.spec.security_context):
        if context is None:
            continue
        user = context.run_as_user if user is None else user
        group = context.run_as_group if group is None else group
    uid = own if user is None else user
    return uid, uid if group is None else group


def arguments(container: Container, env: Mapping[str, str]) -> list[str]:
    """Command and args with their references replaced."""
    return [expand(part, env) for part in (*container.command, *container.args)]
