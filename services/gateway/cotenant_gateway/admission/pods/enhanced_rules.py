"""Labels that the operator requires on pods: the ConfigMap `koordinator-system/pod-enhanced-validator-config`.

In: a pod, and the ConfigMap's members `enable` ("true") and `rules` (JSON: `[{"name", "requiredLabels",
"namespaceWhitelist"}]`). Out: a field error for each label that a rule requires and the pod lacks. Exempt are pods with
the label `pod.koordinator.sh/skip-enhanced-validation: "true"`, pods of a rule's whitelisted namespaces and of namespaces
with the label `control-plane`, and labels that a live pod never had: a pod admitted before the rule stays writable. Rules
that cannot be read are refused when they are written; if another writer than a gateway stored them they are ignored. Source:
Koordinator's pod webhook (gate EnablePodEnhancedValidator; here the ConfigMap is the switch).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.policies import ConfigMap
from cotenant.api.validation.fields import FieldError, invalid, qualified_name, required, wrong_type
from cotenant.kinds.config_maps import CONFIG_MAPS, decode_config_map
from cotenant_gateway.admission.namespaces import is_of_control_plane
from cotenant_gateway.admission.node_configuration.rules import ConfigurationError, decoded_section
from cotenant_gateway.admission.node_configuration.values import Json, shown
from cotenant_gateway.admission.review import ObjectSource, Review

NAMESPACE, NAME = "koordinator-system", "pod-enhanced-validator-config"
LABEL_SKIP = "pod.koordinator.sh/skip-enhanced-validation"
MAX_RULES = 100
MAX_NAMES = 1_000
"""Labels and namespaces of one rule."""


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    required_labels: tuple[str, ...] | None = ()
    namespace_whitelist: tuple[str, ...] | None = ()


class LabelRule(msgspec.Struct, frozen=True):
    """A rule's requirement, and its exceptions."""

    name: str
    required: tuple[str, ...]
    exempt: frozenset[str]


def has_required_labels(review: Review) -> list[FieldError]:
    """Check a pod against the rules in force."""
    rules = review.objects.derived(CONFIG_MAPS, rules_in_force)
    return _missing(rules, review) if rules else []


def _missing(rules: tuple[LabelRule, ...], review: Review) -> list[FieldError]:
    meta = review.view.metadata
    if meta.labels.get(LABEL_SKIP) == "true":
        return []
    if is_of_control_plane(review.objects, meta.namespace):
        return []
    had = None if review.old is None else review.old.meta.labels
    found: list[FieldError] = []
    for rule in rules:
        if meta.namespace in rule.exempt:
            continue
        for label in rule.required:
            if label not in meta.labels and (had is None or label in had):
                detail = f"rule {rule.name} of the ConfigMap {NAMESPACE}/{NAME} requires this label"
                found.append(required(f"metadata.labels[{label}]", detail))
    return found


def rules_in_force(objects: ObjectSource) -> tuple[LabelRule, ...]:
    """Return the rules of the read model; none if they are off, or cannot be read."""
    found = objects.get(CONFIG_MAPS, NAMESPACE, NAME)
    if found is None or found.stored is None:
        return ()
    try:
        config = decode_config_map(found.stored.raw)
    except msgspec.ValidationError:
        return ()
    if config.data.get("enable", "").strip().lower() != "true":
        return ()
    rules, faults = _read(config.data)
    return () if faults else rules


def enhanced_rules_are_valid(review: Review) -> list[FieldError]:
    """Check the ConfigMap when it is written."""
    config = review.view
    if not isinstance(config, ConfigMap) or (config.metadata.namespace, config.metadata.name) != (NAMESPACE, NAME):
        return []
    enable = config.data.get("enable", "").strip().lower()
    found = [] if enable in ("", "true", "false") else [invalid("data[enable]", shown(enable), 'must be "true" or "false"')]
    return [*found, *_read(config.data)[1]]


def _read(data: Mapping[str, str]) -> tuple[tuple[LabelRule, ...], list[FieldError]]:
    path, text = "data[rules]", data.get("rules")
    if text is None:
        return (), []
    try:
        given: Json = decoded_section(text)
    except ConfigurationError as error:
        return (), [invalid(path, shown(text.encode("utf-8", "replace").decode()), f"is not JSON: {error}")]
    if given is None:
        return (), []
    if not isinstance(given, list):
        return (), [wrong_type(path, "must be an array")]
    if len(given) > MAX_RULES:
        return (), [invalid(path, len(given), f"must have at most {MAX_RULES} rules")]
    rules: list[LabelRule] = []
    found: list[FieldError] = []
    for index, each in enumerate(given):
        where = f"{path}[{index}]"
        try:
            rule = msgspec.convert(each, _Rule)
        except msgspec.ValidationError as error:
            found.append(wrong_type(where, str(error)))
            continue
        labels, exempt = rule.required_labels or (), rule.namespace_whitelist or ()
        if not rule.name:
            found.append(required(f"{where}.name", "is named when a pod is refused"))
        if max(len(labels), len(exempt)) > MAX_NAMES:
            found.append(invalid(where, shown(rule.name), f"must have at most {MAX_NAMES} labels and namespaces each"))
            continue
        for place, label in enumerate(labels):
            found += qualified_name(f"{where}.requiredLabels[{place}]", label)
        rules.append(LabelRule(rule.name, labels, frozenset(exempt) - {""}))
    return tuple(rules), found
