"""The ConfigMap `koordinator-system/slo-controller-config` when it is written.

In: the ConfigMap, as it is, and the nodes. Out: field errors for the sections that are set and that change: text that is no
JSON object, values that are not what they must be (`ranges`), node entries without a selector or with one
that cannot be read, entries that would select one node together, and bandwidths of network QoS that do not fit
(`network_shares`). Without the label `koordinator.sh/configmap-type: slo-controller-config` nothing is refused, as with
Koordinator's webhook: batch-resource-calculator then keeps the last section that it could read, and the writer gets
warnings about what would have been refused. Policies and windows without effect, empty texts and objects that are null cause
warnings as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.policies import ConfigMap
from cotenant.api.validation.fields import FieldError, forbidden, invalid, required
from cotenant.api.validation.metadata import selector_errors
from cotenant.kinds.nodes import NODES
from cotenant.model.metric_windows import LONGEST, MAX_WINDOWS, windows_seconds
from cotenant.model.names import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from cotenant_gateway.admission.node_configuration.network_shares import network_share_errors
from cotenant_gateway.admission.node_configuration.overlaps import EntrySelectors, overlap
from cotenant_gateway.admission.node_configuration.ranges import (
    MAX_ENTRIES,
    SECTIONS,
    SectionRules,
    null_objects,
    section_errors,
)
from cotenant_gateway.admission.node_configuration.risk_budget import EXTENSION, FORECAST
from cotenant_gateway.admission.node_configuration.values import Json, member, selector_of, shown
from cotenant_gateway.admission.review import Review

LABEL_CONFIG_MAP_TYPE = "koordinator.sh/configmap-type"
MAX_ERRORS = 50
"""Errors that are reported per section."""
QOS_SECTION, SYSTEM_SECTION = "resource-qos-config", "system-config"
_POLICIES = {
    "cpuCalculatePolicy": ("usage", "maxUsageRequest"),
    "memoryCalculatePolicy": ("usage", "request", "maxUsageRequest"),
    "midReclaimMode": ("static",),
}
"""Values of `colocation-config` that have an effect; any other counts as the first, or as absent."""
_EXTENSIONS = {name.lower(): (name, what) for name, what in ((EXTENSION, "a risk budget"), (FORECAST, "the forecast"))}
"""What is read of the extensions, by the name in lower case; other names are stored as they are."""


class ConfigurationError(ValueError):
    """The text of a section cannot be read; says why."""


def node_configuration_is_valid(review: Review) -> list[FieldError]:
    """Check the sections that change."""
    config = review.view
    if not isinstance(config, ConfigMap) or not is_node_configuration(config) or not _asks_for_checks(config):
        return []
    return _changed_sections(review, config)


def node_configuration_warnings(review: Review) -> list[str]:
    """Violations if the label does not require a refusal, empty texts, and policies without effect."""
    config = review.view
    if not isinstance(config, ConfigMap) or not is_node_configuration(config):
        return []
    found: list[str] = []
    if not _asks_for_checks(config):
        found += [str(error) for error in _changed_sections(review, config)]
        if found:
            found.append(
                "a section that cannot be read leaves the last one that could in force, in place of an entry of "
                "colocation-config that is out of range the cluster's strategy counts, any other is applied as it is; "
                f"with the label {LABEL_CONFIG_MAP_TYPE}: {SLO_CONFIG_NAME} the ConfigMap would have been refused"
            )
    return [*found, *_empty_sections(review, config), *_null_parts(review, config), *_without_effect(config)]


def is_node_configuration(config: ConfigMap) -> bool:
    """Return whether this is the ConfigMap of the node configuration."""
    return (config.metadata.namespace, config.metadata.name) == (SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME)


def _asks_for_checks(config: ConfigMap) -> bool:
    return config.metadata.labels.get(LABEL_CONFIG_MAP_TYPE) == SLO_CONFIG_NAME


def decoded_section(text: str) -> Json:
    """Return a section's text as JSON values. Raises ConfigurationError."""
    try:
        config: Json = json.loads(text, parse_constant=_no_constant)
        json.dumps(config, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError("has half of a surrogate pair, which is not valid text") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(str(error)) from error
    return config


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not a JSON number")


def _before(review: Review) -> Mapping[str, str]:
    old = review.old_view(ConfigMap)
    return old.data if old is not None else {}


def _changed(review: Review, config: ConfigMap) -> Iterator[tuple[str, SectionRules, str]]:
    """Yield the sections that have another text than before: key, rules, text."""
    before = _before(review)
    for key, section in SECTIONS.items():
        text = config.data.get(key, "")
        if text and before.get(key) != text:
            yield key, section, text


def _changed_sections(review: Review, config: ConfigMap) -> list[FieldError]:
    before = _before(review)
    found: list[FieldError] = []
    for key, section, text in _changed(review, config):
        of_section = _section(review, f"data[{key}]", section, text)
        if len(of_section) > MAX_ERRORS:
            more = f"has {len(of_section) - MAX_ERRORS} more errors than are listed here"
            of_section = [*of_section[:MAX_ERRORS], forbidden(f"data[{key}]", more)]
        found += of_section
    qos, system = (config.data.get(key, "") for key in (QOS_SECTION, SYSTEM_SECTION))
    if not found and qos and (before.get(QOS_SECTION), before.get(SYSTEM_SECTION)) != (qos, system):
        found += _network_shares(qos, system)
    return found


def _network_shares(qos: str, system: str) -> list[FieldError]:
    try:
        system_config = decoded_section(system) if system else None
        return network_share_errors(f"data[{QOS_SECTION}]", decoded_section(qos), system_config)[:MAX_ERRORS]
    except ConfigurationError:
        # A section that did not change and cannot be read is not in force.
        return []


def _section(review: Review, path: str, section: SectionRules, text: str) -> list[FieldError]:
    try:
        config = decoded_section(text)
    except ConfigurationError as error:
        return [invalid(path, text.encode("utf-8", "replace").decode()[:100], f"is not JSON: {error}")]
    found = section_errors(path, section, config)
    entries = member(config, section.entries)
    if not isinstance(entries, list) or len(entries) > MAX_ENTRIES:
        return found
    where = f"{path}.{section.entries}"
    selectors: list[LabelSelector] = []
    for index, entry in enumerate(entries):
        given = member(entry, "nodeSelector")
        selector, errors = _selector(f"{where}[{index}].nodeSelector", given, may_be_empty=not section.by_node)
        found += errors
        if selector is not None:
            selectors.append(selector)
    if section.by_node and review.objects.settings.entries_need_names:
        found += _name_errors(where, entries)
    if found or len(entries) < 2 or not section.by_node:
        return found
    pair = overlap(selectors)
    if pair is not None:
        return [forbidden(where, f"entries {pair[0]} and {pair[1]} can select the same node; let one of them exclude it")]
    return _nodes_selected_twice(review, where, selectors)


def _name_errors(where: str, entries: Sequence[Json]) -> list[FieldError]:
    found: list[FieldError] = []
    places: dict[Json, int] = {}
    for index, entry in enumerate(entries):
        name = member(entry, "name")
        if name is None or name == "":
            found.append(required(f"{where}[{index}].name", "each entry needs a name (--node-strategy-name-need-check)"))
        elif isinstance(name, str) and places.setdefault(name, index) != index:
            found.append(invalid(f"{where}[{index}].name", shown(name), f"is the name of entry {places[name]} too"))
    return found


def _selector(path: str, value: Json, *, may_be_empty: bool) -> tuple[LabelSelector | None, list[FieldError]]:
    """`may_be_empty`: `{}`, which selects every node, is one."""
    try:
        selector = LabelSelector() if value is None else selector_of(value)
    except msgspec.ValidationError as error:
        return None, [invalid(path, shown(value), str(error))]
    if not selector.match_labels and not selector.match_expressions and not (value == {} and may_be_empty):
        return None, [required(path, "selects the nodes of the entry")]
    return selector, selector_errors(path, selector)


def _nodes_selected_twice(review: Review, where: str, selectors: Sequence[LabelSelector]) -> list[FieldError]:
    entries = EntrySelectors(selectors)
    for node in review.objects.objects(NODES):
        selecting = entries.selecting(node.labels)
        if len(selecting) > 1:
            return [forbidden(where, f"node {node.address.name} is selected by the entries {selecting}; one may select it")]
    return []


def _empty_sections(review: Review, config: ConfigMap) -> Iterator[str]:
    """Yield the sections that become empty texts, which cannot be read; that of the first section means its defaults."""
    before = _before(review)
    for key in list(SECTIONS)[1:]:
        if config.data.get(key) == "" and before.get(key) != "":
            yield f"data[{key}] is empty, so that the section stays as it is in force; remove the key for its defaults"


def _null_parts(review: Review, config: ConfigMap) -> Iterator[str]:
    """Yield the parts of sections that change and are null, at most MAX_ERRORS of a section."""
    for key, section, text in _changed(review, config):
        try:
            given = decoded_section(text)
        except ConfigurationError:
            continue
        for path in islice(null_objects(f"data[{key}]", section, given), MAX_ERRORS):
            yield f"{path} is null: it counts as absent, which switches off what it configured"


def _without_effect(config: ConfigMap) -> Iterator[str]:
    """Yield the members of `colocation-config` without effect: unknown policies, impossible windows, misspelled extensions."""
    key = "colocation-config"
    try:
        section = decoded_section(config.data.get(key) or "{}")
    except ConfigurationError:
        return
    entries = member(section, "nodeConfigs")
    given = [("", section)]
    if isinstance(entries, list):
        given += [(f".nodeConfigs[{index}]", entry) for index, entry in enumerate(entries[:MAX_ENTRIES])]
    for where, strategy in given:
        given_extensions = member(strategy, "extensions")
        for name in given_extensions if isinstance(given_extensions, dict) else ():
            meant = _EXTENSIONS.get(name.lower(), (name, ""))
            if name != meant[0]:
                yield f"data[{key}]{where}.extensions[{shown(name)}] has no effect: the name of {meant[1]} is {meant[0]}"
        durations = member(member(strategy, "metricAggregatePolicy"), "durations")
        texts = [each for each in durations if isinstance(each, str)] if isinstance(durations, list) else []
        if durations is not None and not windows_seconds(texts):
            yield (
                f"data[{key}]{where}.metricAggregatePolicy.durations has no effect: "
                f"1 to {MAX_WINDOWS} windows of 1 s to {LONGEST.days} days are possible"
            )
        for name, known in _POLICIES.items():
            value = member(strategy, name)
            if isinstance(value, str) and value and value not in known:
                counts = "is ignored" if name == "midReclaimMode" else f"counts as {known[0]}"
                yield f'data[{key}]{where}.{name}: "{shown(value)}" {counts}; known: {", ".join(known)}'
