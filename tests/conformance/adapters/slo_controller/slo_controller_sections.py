"""slo-controller vectors of the ConfigMap's sections and of the NodeSLO that they make."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.node import Node
from cotenant_batch_resource_calculator.config import colocation, sections
from cotenant_batch_resource_calculator.config.collecting import CollectPolicy, collect_policy
from cotenant_batch_resource_calculator.config.colocation import ColocationConfig, ColocationStrategy
from cotenant_batch_resource_calculator.config.in_force import load_configuration
from cotenant_batch_resource_calculator.config.json_overlay import ConfigError, canonical, fit
from cotenant_batch_resource_calculator.rendering import render_spec
from cotenant_gateway.admission.node_configuration.overlaps import overlap
from cotenant_gateway.admission.node_configuration.ranges import SECTIONS, section_errors

Json = dict[str, Any]

_KINDS = {kind.key: kind for kind in sections.STRATEGIES}


def nodeslo_merge(given: Json, *, name: str) -> object:
    return _OPERATIONS[given["op"]](given)


def _selector(selector: LabelSelector | None) -> Json:
    return {} if selector is None else {"nodeSelector": msgspec.to_builtins(selector)}


def _section_config(given: Json) -> object:
    try:
        if given["section"] == sections.HOST_APPLICATIONS_KEY:
            hosts = sections.load_host_applications(given["data"])
            entries = [_selector(selector) | {"applications": _shown(applications)} for selector, applications in hosts.entries]
            return {"error": False, "config": {"applications": _shown(hosts.cluster), "nodeConfigs": entries}}
        section = sections.load_strategies(_KINDS[given["section"]], given["data"])
    except ConfigError:
        # What stands in is what the node's last event says.
        return {"error": True, "config": given["oldConfig"]}
    strategies = [_selector(selector) | strategy for selector, strategy in section.entries]
    return {"error": False, "config": {"clusterStrategy": section.cluster, "nodeStrategies": strategies}}


def _shown(applications: list[sections.HostApplication]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(applications))


def _section_select(given: Json) -> object:
    key = given["section"]
    configuration = load_configuration({key: msgspec.json.encode(given["config"]).decode()})
    metadata = _node(given["node"]).metadata
    spec = render_spec(configuration, metadata.labels, metadata.annotations, {})
    field = _KINDS[key].field if key in _KINDS else "hostApplications"
    return {"error": key in configuration.rejected, "strategy": spec[field]}


def _node(document: Json) -> Node:
    return msgspec.convert(document, Node)


def _render(given: Json) -> object:
    metadata = _node(given["node"]).metadata
    return {"spec": render_spec(load_configuration(given["configMapData"]), metadata.labels, metadata.annotations, {})}


def _config_shown(config: ColocationConfig) -> Json:
    entries = [
        _selector(entry.selector) | ({"name": entry.name} if entry.name else {}) | entry.strategy for entry in config.entries
    ]
    return dict(config.cluster) | {"nodeConfigs": entries}


def _colocation_config(given: Json) -> object:
    old, exists = given["oldConfig"], given["configMapExists"]
    try:
        config = _config_shown(colocation.load(given["data"] if exists else None))
    except ConfigError:
        return {"changed": False, "available": given["oldAvailable"], "errorStatus": True, "config": old}
    before = canonical(old, ColocationStrategy) | {"nodeConfigs": old.get("nodeConfigs") or []}
    return {"changed": config != before, "available": True, "errorStatus": not exists, "config": config}


def _colocation_strategy(given: Json) -> object:
    if given["config"] is None or given["node"] is None:
        return {"strategy": None}
    config = colocation.of_document(given["config"], defaults={})
    metadata = _node(given["node"]).metadata
    strategy, _ = colocation.on_node(colocation.choose(config, metadata.labels), metadata.labels, metadata.annotations)
    return {"strategy": msgspec.json.decode(msgspec.json.encode(strategy))}


def _strategy_valid(given: Json) -> object:
    if given["strategy"] is None:
        return {"valid": False}
    return {"valid": not colocation.out_of_range(fit(given["strategy"], ColocationStrategy, "strategy"))}


def _nodemetric_spec(given: Json) -> object:
    configuration = load_configuration({colocation.KEY: given["data"]} if given["data"] is not None else {})
    metadata = _node(given["node"]).metadata
    given_before = (given["oldSpec"] or {}).get("metricCollectPolicy")
    before = fit(given_before, CollectPolicy, "metricCollectPolicy") if given_before is not None else None
    config = configuration.colocation if given["configMapExists"] else None
    policy = collect_policy(config, metadata.labels, metadata.annotations, before)
    return {"spec": {"metricCollectPolicy": msgspec.to_builtins(policy)}}


def _config_check(given: Json) -> object:
    return {"valid": not section_errors("data", SECTIONS[given["section"]], given["config"])}


def _selector_overlap(given: Json) -> object:
    selectors = [msgspec.convert(profile["nodeSelector"], LabelSelector) for profile in given["profiles"]]
    return {"overlap": overlap(selectors) is not None}


_OPERATIONS = {
    "nodemetric_spec": _nodemetric_spec,
    "config_check": _config_check,
    "selector_overlap": _selector_overlap,
    "section_config": _section_config,
    "section_select": _section_select,
    "render": _render,
    "colocation_config": _colocation_config,
    "colocation_strategy": _colocation_strategy,
    "strategy_valid": _strategy_valid,
}
