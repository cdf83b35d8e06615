"""The ConfigMap `koordinator-system/slo-controller-config` when it is written, if its label asks for the check.

In: the ConfigMap (label `koordinator.sh/configmap-type: slo-controller-config`), as it is, and the nodes. Out: field errors for
the sections that are set and that change: text that is no JSON object, values out of their range
(`node_configuration_ranges`), node entries without a selector or with one that cannot be read, and entries that would select
one node together. Without the label nothing is checked, as with Koordinator's webhook: batch-resource-calculator then goes on
with the last section that was right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import lcm

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.policies import ConfigMap
from cotenant.api.objects.selectors import selector_holds
from cotenant.api.validation.fields import FieldError, forbidden, invalid, required
from cotenant.api.validation.metadata import selector_errors
from cotenant.kinds.nodes import NODES
from cotenant.model.names import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from cotenant_gateway.admission.node_configuration_ranges import SECTIONS, Section, member, section_errors
from cotenant_gateway.admission.review import Review

LABEL_CONFIG_MAP_TYPE = "koordinator.sh/configmap-type"
MAX_SAMPLE_NODES = 1_000
"""Sets of labels that are tried for one entry; the values of its expressions have too many combinations."""


def node_configuration_is_valid(review: Review) -> list[FieldError]:
    """Check the sections that change."""
    config = review.view
    if not isinstance(config, ConfigMap) or not _is_checked(config):
        return []
    old = review.old_view(ConfigMap)
    found: list[FieldError] = []
    for key, section in SECTIONS.items():
        text = config.data.get(key, "")
        if text and (old is None or old.data.get(key) != text):
            found += _section(review, f"data[{key}]", section, text)
    return found


def _is_checked(config: ConfigMap) -> bool:
    meta = config.metadata
    return (meta.namespace, meta.name, meta.labels.get(LABEL_CONFIG_MAP_TYPE)) == (
        SLO_CONFIG_NAMESPACE,
        SLO_CONFIG_NAME,
        SLO_CONFIG_NAME,
    )


def _section(review: Review, path: str, section: Section, text: str) -> list[FieldError]:
    try:
        config: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [invalid(path, text if len(text) <= 100 else f"{text[:100]}...", f"is no JSON: {error}")]
    found = section_errors(path, section, config)
    entries = member(config, section.entries)
    if not isinstance(entries, list):
        return found
    selectors: list[LabelSelector] = []
    for index, entry in enumerate(entries):
        selector, errors = _selector(f"{path}.{section.entries}[{index}].nodeSelector", member(entry, "nodeSelector"))
        found += errors
        if selector is not None:
            selectors.append(selector)
    if found or len(entries) < 2:
        return found
    where = f"{path}.{section.entries}"
    pair = overlap(selectors)
    if pair is not None:
        return [forbidden(where, f"entries {pair[0]} and {pair[1]} can select the same node; let one of them exclude it")]
    return _nodes_selected_twice(review, where, selectors)


def _selector(path: str, value: object) -> tuple[LabelSelector | None, list[FieldError]]:
    try:
        selector = LabelSelector() if value is None else msgspec.convert(value, LabelSelector)
    except msgspec.ValidationError as error:
        return None, [invalid(path, json.dumps(value)[:100], str(error))]
    if not selector.match_labels and not selector.match_expressions:
        return None, [required(path, "names the nodes that the entry is for")]
    return selector, selector_errors(path, selector)


def _nodes_selected_twice(review: Review, where: str, selectors: Sequence[LabelSelector]) -> list[FieldError]:
    for node in review.objects.objects(NODES):
        selecting = [index for index, selector in enumerate(selectors) if selector_holds(selector, node.labels)]
        if len(selecting) > 1:
            return [forbidden(where, f"node {node.address.name} is selected by the entries {selecting}; one may select it")]
    return []


def overlap(selectors: Sequence[LabelSelector]) -> tuple[int, int] | None:
    """Return two entries that select a node together, tried on nodes made from each entry's own labels and values.

    Koordinator's rule: such a node has the entry's labels and, of each expression with values, the next value in turn.
    """
    for selector in selectors:
        for labels in _sample_nodes(selector):
            selecting = [index for index, other in enumerate(selectors) if selector_holds(other, labels)]
            if len(selecting) > 1:
                return selecting[0], selecting[1]
    return None


def _sample_nodes(selector: LabelSelector) -> Iterator[Mapping[str, str]]:
    expressions = [expression for expression in selector.match_expressions if expression.values]
    # The values are taken in turn, so after their least common multiple the same nodes come again.
    count = min(lcm(*(len(expression.values) for expression in expressions)), MAX_SAMPLE_NODES)
    for number in range(count):
        taken = {expression.key: expression.values[number % len(expression.values)] for expression in expressions}
        yield {**selector.match_labels, **taken}
