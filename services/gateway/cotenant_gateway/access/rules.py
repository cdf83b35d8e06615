"""Which requests a rule allows, and whether rules cover another rule. Source: Kubernetes' rbac evaluation helpers
and its rule ownership check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from cotenant.api.objects.rbac import ALL, PolicyRule
from cotenant_gateway.access.attributes import RequestAttributes


def allows(rule: PolicyRule, asked: RequestAttributes) -> bool:
    """Return whether a rule allows a request."""
    if asked.verb not in rule.verbs and ALL not in rule.verbs:
        return False
    if not asked.resource:
        return any(_is_path(pattern, asked.path) for pattern in rule.non_resource_urls)
    return (
        (asked.group in rule.api_groups or ALL in rule.api_groups)
        and _has_resource(rule.resources, asked.resource, asked.subresource)
        and (not rule.resource_names or asked.name in rule.resource_names)
    )


def _has_resource(resources: Sequence[str], resource: str, subresource: str) -> bool:
    if ALL in resources:
        return True
    if not subresource:
        return resource in resources
    return f"{resource}/{subresource}" in resources or f"{ALL}/{subresource}" in resources


def _is_path(pattern: str, path: str) -> bool:
    return pattern in (ALL, path) or (pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL)))


def uncovered(owned: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return the parts of the wanted rules that the owned ones do not allow, one verb, group, resource and name at a time."""
    return [part for rule in wanted for part in _parts(rule) if not any(_covers(own, part) for own in owned)]


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    for verb, url in product(rule.verbs, rule.non_resource_urls):
        yield PolicyRule(verbs=(verb,), non_resource_urls=(url,))
    for verb, group, resource in product(rule.verbs, rule.api_groups, rule.resources):
        if not rule.resource_names:
            yield PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,))
        for name in rule.resource_names:
            yield PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,), resource_names=(name,))


def _covers(own: PolicyRule, part: PolicyRule) -> bool:
    """Return whether a rule allows what a rule of one verb, and of one path or one group, resource and name, does."""
    if ALL not in own.verbs and part.verbs[0] not in own.verbs:
        return False
    if part.non_resource_urls:
        return any(_is_path(pattern, part.non_resource_urls[0]) for pattern in own.non_resource_urls)
    resource, _, subresource = part.resources[0].partition("/")
    return (
        (ALL in own.api_groups or part.api_groups[0] in own.api_groups)
        and (part.resources[0] in own.resources or _has_resource(own.resources, resource, subresource))
        and (not own.resource_names or (bool(part.resource_names) and part.resource_names[0] in own.resource_names))
    )
