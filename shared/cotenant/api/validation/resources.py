"""Requests and limits of a container.

In: the two resource lists. Out: field errors. Rules: names are `cpu`, `memory`, `ephemeral-storage`, `hugepages-*`,
or qualified; quantities are not negative; a request is not above its limit; resources that cannot be overcommitted
(huge pages, and extended resources: any qualified name outside `kubernetes.io/`) are whole numbers and their request
equals their limit. Source: Kubernetes `ValidateContainerResources`; `kubernetes.io/batch-*` and `mid-*` therefore
count as resources that may be overcommitted.
"""

from __future__ import annotations

from cotenant.api.objects.pod import Resources
from cotenant.api.validation.fields import FieldError, invalid, qualified_name, quantity, required
from cotenant.model.quantities import Scalar, parse_nanos

_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})


def is_extended(resource: str) -> bool:
    """Return whether a name is an extended resource: qualified, and not Kubernetes' own domain."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def may_be_overcommitted(resource: str) -> bool:
    """Return whether a limit may be above the request."""
    return not is_extended(resource) and not resource.startswith("hugepages-")


def resource_name_errors(field: str, resource: str) -> list[FieldError]:
    """Return the errors in a resource's name in a container."""
    if resource in _STANDARD:
        return []
    found = qualified_name(field, resource)
    if not found and "/" not in resource and not resource.startswith("hugepages-"):
        found.append(invalid(field, resource, "must be a standard resource for containers"))
    return found


def resource_errors(field: str, resources: Resources) -> list[FieldError]:
    """Return the errors in a container's requests and limits."""
    found: list[FieldError] = []
    for section, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for resource, amount in amounts.items():
            path = f"{field}.{section}[{resource}]"
            found += resource_name_errors(path, resource)
            found += quantity(path, amount, resource=resource, whole=not may_be_overcommitted(resource))
    if found:
        return found
    for resource, amount in resources.requests.items():
        found += _request_against_limit(field, resource, amount, resources.limits.get(resource))
    return found


def _request_against_limit(field: str, resource: str, request: Scalar, limit: Scalar | None) -> list[FieldError]:
    path = f"{field}.requests[{resource}]"
    if limit is None:
        if may_be_overcommitted(resource) or parse_nanos(request) == 0:
            return []
        return [required(f"{field}.limits[{resource}]", "Limit must be set for non overcommitable resources")]
    if not may_be_overcommitted(resource):
        if parse_nanos(request) != parse_nanos(limit):
            return [invalid(path, str(request), f"must be equal to {resource} limit of {limit}")]
    elif parse_nanos(request) > parse_nanos(limit):
        return [invalid(path, str(request), f"must be less than or equal to {resource} limit of {limit}")]
    return []
