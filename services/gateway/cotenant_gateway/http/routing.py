"""From a path to its target: kind, namespace, name, subresource.

`/api/v1/...` is the core group, `/apis/<group>/<version>/...` the others; a namespaced resource is below
`namespaces/<namespace>/`. Anything else has no target.
"""

from __future__ import annotations

from urllib.parse import unquote

import msgspec

from cotenant.api.definitions import Registry
from cotenant.api.kinds import Kind


class RequestTarget(msgspec.Struct, frozen=True):
    """The target of a path. An empty name means the collection; an empty namespace all namespaces (or cluster scope)."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target_of(path: str, kinds: Registry) -> RequestTarget | None:
    """Return the target of an API path; None if no resource is served there."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3 and parts[1] == "v1":
        group, rest = "", parts[2:]
        version = "v1"
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if "%" in path:
        rest = [unquote(part) for part in rest]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and kinds.resource(group, rest[2]) is not None:
        namespace, rest = rest[1], rest[2:]
        if not namespace:
            return None
    kind = kinds.resource(group, rest[0])
    if kind is None or kind.version != version or len(rest) > 3 or (namespace and not kind.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if (len(rest) > 1 and not name) or (kind.namespaced and name and not namespace):
        return None
    return RequestTarget(kind, namespace, name, subresource)
