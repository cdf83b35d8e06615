"""Nodes when they are written: labels and annotations of overcommitment and of load-aware scheduling, and whether the node
configuration selects them twice.

In: the node, as it is, and the ConfigMap `slo-controller-config`. Out: field errors. Annotations and labels are checked
when they change; an unreadable value is refused, where Koordinator accepts it and omits it from its sums. A node
whose labels change may be selected by one entry of each section (Koordinator's node webhook); one that is new is only warned
of, as it must be able to register.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import inf, isfinite

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.node import Node
from cotenant.api.objects.policies import ConfigMap
from cotenant.api.validation.fields import FieldError, forbidden, invalid
from cotenant.domain.amplification import MAX_RATIO
from cotenant.domain.selectors import SelectorError, check_selector
from cotenant.kinds.config_maps import CONFIG_MAPS, decode_config_map
from cotenant.model.names import (
    ANNOTATION_COLOCATION_STRATEGY,
    LABEL_CPU_RECLAIM_RATIO,
    LABEL_MEMORY_RECLAIM_RATIO,
    SLO_CONFIG_NAME,
    SLO_CONFIG_NAMESPACE,
)
from cotenant_gateway.admission.node_configuration.overlaps import EntrySelectors
from cotenant_gateway.admission.node_configuration.ranges import COLOCATION, MAX_ENTRIES, SECTIONS, strategy_errors
from cotenant_gateway.admission.node_configuration.rules import ConfigurationError, decoded_section
from cotenant_gateway.admission.node_configuration.values import (
    Json,
    amount,
    amounts,
    duration,
    each_member,
    member,
    members_of,
    number,
    one_of,
    selector_of,
    whole,
)
from cotenant_gateway.admission.review import ObjectSource, Review

_DOMAIN = "node.koordinator.sh"
ANNOTATION_AMPLIFICATION = f"{_DOMAIN}/resource-amplification-ratio"
ANNOTATION_RAW_ALLOCATABLE = f"{_DOMAIN}/raw-allocatable"
ANNOTATION_NORMALIZATION = f"{_DOMAIN}/cpu-normalization-ratio"
ANNOTATION_NETWORK_BANDWIDTH = f"{_DOMAIN}/network-bandwidth"
ANNOTATION_USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
LABEL_NORMALIZATION = f"{_DOMAIN}/cpu-normalization-enabled"
_RATIO_LABELS = (
    LABEL_CPU_RECLAIM_RATIO,
    LABEL_MEMORY_RECLAIM_RATIO,
    f"{_DOMAIN}/mid-static-cpu-reserved-ratio",
    f"{_DOMAIN}/mid-static-memory-reserved-ratio",
)
_BOOLEANS = frozenset(["1", "t", "T", "true", "True", "TRUE", "0", "f", "F", "false", "False", "FALSE"])
_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,17})?|\.[0-9]{1,17}")
Selectors = tuple[tuple[str, EntrySelectors], ...]


def node_figures_are_valid(review: Review) -> list[FieldError]:
    """Check the annotations and labels that change."""
    node, old = review.view, review.old_view(Node)
    meta = node.metadata
    before = old.metadata if old is not None else None
    found: list[FieldError] = []
    for what, given, known, checks in (
        ("annotations", meta.annotations, before.annotations if before is not None else {}, _ANNOTATIONS),
        ("labels", meta.labels, before.labels if before is not None else {}, _LABELS),
    ):
        for name, check in checks.items():
            text = given.get(name)
            if text is not None and text != known.get(name):
                found += check(f"metadata.{what}[{name}]", text)
    return found


def one_entry_selects_node(review: Review) -> list[FieldError]:
    """A change of a node's labels must not make two entries of a section select it."""
    old = review.old
    if old is None or old.stored is None or old.stored.meta.labels == review.view.metadata.labels:
        return []
    return [forbidden("metadata.labels", why) for why in _selected_twice(review, old.overlay.labels)]


def new_node_warnings(review: Review) -> list[str]:
    """Warn of a new node that two entries of a section select."""
    return [] if review.old is not None else [f"metadata.labels: {why}" for why in _selected_twice(review, {})]


def _selected_twice(review: Review, reported: Mapping[str, str]) -> Iterator[str]:
    """Yield which sections have two entries for the node. `reported`: labels that its executor adds."""
    labels = {**review.view.metadata.labels, **reported}
    for key, selectors in review.objects.derived(CONFIG_MAPS, entry_selectors):
        selecting = selectors.selecting(labels)
        if len(selecting) > 1:
            yield (
                f"the entries {selecting} of {key} in the ConfigMap {SLO_CONFIG_NAME} would select the node; one may: "
                "change the labels, or let one entry exclude the other"
            )


def entry_selectors(objects: ObjectSource) -> Selectors:
    """Return the node selectors of each section with more than one entry; a section or an entry that cannot be read is left
    out."""
    found = objects.get(CONFIG_MAPS, SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME)
    if found is None or found.stored is None:
        return ()
    try:
        config = decode_config_map(found.stored.raw)
    except msgspec.ValidationError:
        return ()
    sections = ((key, tuple(_selectors_of(config, key))) for key, section in SECTIONS.items() if section.by_node)
    return tuple((key, EntrySelectors(selectors)) for key, selectors in sections if len(selectors) > 1)


def _selectors_of(config: ConfigMap, key: str) -> Iterator[LabelSelector]:
    try:
        entries = member(decoded_section(config.data.get(key) or "null"), SECTIONS[key].entries)
    except ConfigurationError:
        return
    for entry in entries[:MAX_ENTRIES] if isinstance(entries, list) else ():
        try:
            selector = selector_of(member(entry, "nodeSelector"))
            check_selector(selector)
        except (msgspec.ValidationError, SelectorError):
            # As in the calculator, such an entry selects nothing.
            selector = _NOTHING
        yield selector


_NOTHING = msgspec.convert({"matchExpressions": [{"key": "", "operator": "Exists"}]}, LabelSelector)

Check = Callable[[str, str], list[FieldError]]


def _json(check: Callable[[str, Json], list[FieldError]]) -> Check:
    """A text that is a JSON object, with a check of its contents."""

    def of_text(field: str, text: str) -> list[FieldError]:
        try:
            value = decoded_section(text)
        except ConfigurationError as error:
            return [invalid(field, text, f"is not JSON: {error}")]
        return check(field, value)

    return of_text


def _strategy(field: str, value: Json) -> list[FieldError]:
    return strategy_errors(field, COLOCATION, {} if value is None else value)


def _decimal(range_detail: str, low: float, high: float = inf) -> Check:
    def of_text(field: str, text: str) -> list[FieldError]:
        right = _DECIMAL.fullmatch(text) is not None and isfinite(float(text)) and low <= float(text) <= high
        return [] if right else [invalid(field, text, f"must be a decimal number {range_detail}, such as 1.20")]

    return of_text


def _boolean(field: str, text: str) -> list[FieldError]:
    return [] if text in _BOOLEANS else [invalid(field, text, 'must be "true" or "false"')]


_PERCENTAGES = each_member(whole(0, 100))
_USAGE_THRESHOLDS = members_of(
    {
        "usageThresholds": _PERCENTAGES,
        "prodUsageThresholds": _PERCENTAGES,
        "aggregatedUsage": members_of(
            {
                "usageThresholds": _PERCENTAGES,
                "usageAggregationType": one_of("avg", "p50", "p90", "p95", "p99"),
                "usageAggregatedDuration": duration,
            }
        ),
    }
)

_ANNOTATIONS: Mapping[str, Check] = {
    ANNOTATION_AMPLIFICATION: _json(each_member(number(None, 1.0, MAX_RATIO))),
    ANNOTATION_RAW_ALLOCATABLE: _json(amounts),
    ANNOTATION_NORMALIZATION: _decimal("above 0", 0.01),
    ANNOTATION_NETWORK_BANDWIDTH: amount,
    ANNOTATION_COLOCATION_STRATEGY: _json(_strategy),
    ANNOTATION_USAGE_THRESHOLDS: _json(_USAGE_THRESHOLDS),
}
_LABELS: Mapping[str, Check] = {
    LABEL_NORMALIZATION: _boolean,
    **dict.fromkeys(_RATIO_LABELS, _decimal("from 0 to 100", 0.0, 100.0)),
}
