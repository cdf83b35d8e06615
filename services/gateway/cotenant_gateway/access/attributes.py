"""A request's attributes for authorization: verb, resource and names, or verb and path. Source: Kubernetes' RequestInfo."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from cotenant.api.kinds import Kind

FACTS_GROUP = "cotenant.io"
"""What is below `/apis/cotenant.io/v1`: `events`, `explain`, `status`, `deadletters`, `nodes/adopt`."""
_NAME_SELECTOR = re.compile(r"(?:^|,)metadata\.name={1,2}([^,=!]+)(?:,|$)")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class RequestAttributes(msgspec.Struct, frozen=True):
    """One request. `resource` is empty for one that is about a path."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    """Empty: all namespaces, or a resource of the cluster."""
    name: str = ""
    path: str = ""

    @property
    def qualified(self) -> str:
        """The resource with its subresource, as rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def of_resource(
    method: str, kind: Kind, namespace: str, name: str, subresource: str, query: Mapping[str, str]
) -> RequestAttributes:
    """Return the attributes of a request for a resource. A list or watch that selects one name is about that name."""
    if method in ("GET", "HEAD"):
        watched = query.get("watch", "") in ("1", "true", "True")
        verb = "watch" if watched else "get" if name else "list"
        if not name and (selected := _NAME_SELECTOR.search(query.get("fieldSelector", ""))):
            name = selected.group(1)
    elif method == "DELETE":
        verb = "delete" if name else "deletecollection"
    else:
        verb = _VERBS.get(method, method.lower())
    return RequestAttributes(verb, kind.group, kind.plural, subresource, namespace, name)


def of_fact(method: str, below: str, query: Mapping[str, str]) -> RequestAttributes:
    """Return the attributes of a request about the log: `/events`, `/explain/pod/<namespace>/<name>`, ..., and
    `/nodes/<name>/adopt`."""
    resource, *rest = below.strip("/").split("/")
    verb = "get" if method in ("GET", "HEAD") else _VERBS.get(method, method.lower())
    if resource == "nodes":
        name, subresource = (*rest, "", "")[:2]
        return RequestAttributes(verb, FACTS_GROUP, resource, subresource, "", name)
    if resource == "explain" and rest[:1] == ["pod"]:
        namespace, name = (*rest[1:], "", "")[:2]
        return RequestAttributes(verb, FACTS_GROUP, resource, "", namespace, name)
    name = rest[-1] if rest else ""
    return RequestAttributes(verb, FACTS_GROUP, resource, "", query.get("namespace", ""), name)


def of_path(method: str, path: str) -> RequestAttributes:
    """Return the attributes of a request for something else than a resource."""
    return RequestAttributes("get" if method in ("GET", "HEAD") else method.lower(), path=path)
