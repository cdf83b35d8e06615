"""Which pods a reservation is for.

In: the owner rules of a Reservation, and a pod's identity. Out: whether one of the rules matches the pod. Rules are ORed, the
parts of one are ANDed; no rules match no pod, a rule without parts matches every pod.

    object          uid, name, namespace and apiVersion, where given, are the pod's; the kind is ignored
    controller      the namespace, where given, is the pod's; one of its owner references agrees in every given field
    labelSelector   selects the pod's labels; with a selector that cannot be evaluated the whole reservation matches no pod
Source: Koordinator `MatchReservationOwners`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cotenant.api.objects.metadata import OwnerReference
from cotenant.api.objects.reservation import ControllerReference, OwnerRule
from cotenant.domain.selectors import SelectorError, check_selector, selects

POD_API_VERSION = "v1"


class PodIdentity(msgspec.Struct, frozen=True):
    """The input of owner rules."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    owner_references: Sequence[OwnerReference] = ()
    api_version: str = POD_API_VERSION


def check_owners(rules: Sequence[OwnerRule]) -> None:
    """Raise SelectorError where a rule cannot be evaluated."""
    for rule in rules:
        if rule.label_selector is not None:
            check_selector(rule.label_selector)


def owners_match(rules: Sequence[OwnerRule], pod: PodIdentity) -> bool:
    """Return whether one of the rules matches a pod."""
    try:
        check_owners(rules)
    except SelectorError:
        return False
    return any(rule_matches(rule, pod) for rule in rules)


def rule_matches(rule: OwnerRule, pod: PodIdentity) -> bool:
    """Return whether all given parts of one rule agree with a pod. Raises SelectorError."""
    wanted = rule.object
    if wanted is not None:
        pairs = (
            (wanted.uid, pod.uid),
            (wanted.name, pod.name),
            (wanted.namespace, pod.namespace),
            (wanted.api_version, pod.api_version),
        )
        if any(given and given != actual for given, actual in pairs):
            return False
    if rule.controller is not None and not _controlled(rule.controller, pod):
        return False
    return selects(rule.label_selector, pod.labels, absent=True)


def _controlled(controller: ControllerReference, pod: PodIdentity) -> bool:
    if controller.namespace and controller.namespace != pod.namespace:
        return False
    return any(_agrees(controller, reference) for reference in pod.owner_references)


def _agrees(wanted: ControllerReference, actual: OwnerReference) -> bool:
    if wanted.controller is not None and wanted.controller != bool(actual.controller):
        return False
    pairs = (
        (wanted.uid, actual.uid),
        (wanted.name, actual.name),
        (wanted.kind, actual.kind),
        (wanted.api_version, actual.api_version),
    )
    return all(not given or given == found for given, found in pairs)
