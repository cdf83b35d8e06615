"""slo-controller vectors of CPU normalisation and resource amplification: rules of batch-resource-calculator, and those
that every reader of a Node shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.node import Node
from cotenant.domain.amplification import (
    AmplificationError,
    amplified_milli,
    parse_ratios,
    raw_changed,
    written_raw,
)
from cotenant.domain.node import NodeSources
from cotenant.domain.node_annotations import derived_annotations
from cotenant.events.node.resources import NodeResources
from cotenant.model.names import (
    ANNOTATION_AMPLIFICATION_RATIO,
    ANNOTATION_CPU_BASIC_INFO,
    ANNOTATION_CPU_NORMALIZATION_RATIO,
)
from cotenant.model.quantities import QuantityError, parse_milli
from cotenant_batch_resource_calculator.config.json_overlay import ConfigError
from cotenant_batch_resource_calculator.config.ratios import (
    AMPLIFICATION,
    NORMALIZATION,
    RatioSectionKind,
    load_ratios,
    ratios_of,
    select_ratios,
)
from cotenant_batch_resource_calculator.formulas.amplification import amplification as amplification_ratios
from cotenant_batch_resource_calculator.formulas.normalization import (
    RatioError,
    normalization,
    parse_basic_info,
    parse_enabled,
    parse_ratio,
    ratio_from_model,
    ratio_moved,
)
from cotenant_batch_resource_calculator.topology import declared_topology
from tests.conformance.mended import mended

Json = dict[str, Any]


def cpu_normalization(given: Json, *, name: str) -> object:
    return _NORMALIZATION[given["op"]](given)


def amplification(given: Json, *, name: str) -> object:
    return _AMPLIFICATION[given["op"]](given)


# -- reading what the vectors give ---------------------------------------------------------------------------------


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _node(document: Json | None) -> Node:
    return msgspec.convert(_without_nulls(document or {}), Node)


def _allocatable(document: Json | None) -> Json | None:
    """None where the object or its allocatable is missing."""
    found: Json | None = ((document or {}).get("status") or {}).get("allocatable")
    return found


def _basic_info(document: Json) -> Any:
    info = parse_basic_info({ANNOTATION_CPU_BASIC_INFO: msgspec.json.encode(document).decode()})
    assert info is not None
    return info


# -- what both sections share --------------------------------------------------------------------------------------


def _shown(kind: RatioSectionKind[Any], section: Any) -> Json:
    def selected(selector: LabelSelector | None) -> Json:
        return {} if selector is None else {"nodeSelector": msgspec.to_builtins(selector)}

    entries = [selected(selector) | document for selector, document, _ in section.entries]
    return dict(section.cluster) | ({"nodeConfigs": entries} if entries else {})


def _config_merge(kind: RatioSectionKind[Any], given: Json) -> object:
    old = given["oldConfig"]
    try:
        config = _shown(kind, load_ratios(kind, given["data"]))
    except ConfigError:
        # What stands in is what the node's last event says.
        return {"changed": False, "config": old}
    before = None if old is None else _shown(kind, ratios_of(kind, _without_nulls(old)))
    return {"changed": config != before, "config": config}


def _prepare(given: Json) -> object:
    node = _node(given["node"])
    decided = given["result"].get("annotations") or {}
    resources = NodeResources(
        node=node.metadata.name,
        withdrawn=True,
        cpu_normalization=decided.get(ANNOTATION_CPU_NORMALIZATION_RATIO, ""),
        amplification=parse_ratios(decided),
    )
    annotations = {**node.metadata.annotations, **derived_annotations(NodeSources(node, resources=resources))}
    found = {"annotations": annotations}
    if given["op"] == "prepare_amplification" and not resources.amplification and parse_ratios(annotations):
        # The annotation of an object is its writer's: what the calculator decides goes when it decides it no more.
        return mended(found, "$.annotations*", trap="T1: an annotation that somebody else wrote is deleted")
    return found


# -- CPU normalisation ---------------------------------------------------------------------------------------------


def _normalization_calculate(given: Json) -> object:
    section = ratios_of(NORMALIZATION, _without_nulls(given["config"]))
    labels = _node(given["node"]).metadata.labels
    try:
        nrt = given.get("nrt")
        info = parse_basic_info(declared_topology(msgspec.json.encode(nrt)).annotations) if nrt else None
        return {"error": False, "ratio": normalization(labels, select_ratios(section, labels), info)}
    except RatioError:
        return {"error": True}


def _ratio_from_model(given: Json) -> object:
    document = _without_nulls(given["strategy"])
    if not given["useDefaultRatio"]:
        document.pop("defaultRatio", None)
    if given["basicInfo"] is None:
        return {"error": True}
    try:
        ratio = ratio_from_model(_basic_info(given["basicInfo"]), ratios_of(NORMALIZATION, document).strategy)
    except RatioError:
        return {"error": True}
    return {"error": False, "ratio": ratio}


def _parse_normalization(given: Json) -> object:
    try:
        ratio = parse_ratio(_node(given["node"]).metadata.annotations)
    except RatioError:
        return {"error": True, "ratio": -1}
    return {"error": False, "ratio": -1 if ratio is None else ratio}


def _parse_enabled(given: Json) -> object:
    try:
        return {"error": False, "enabled": parse_enabled(_node(given["node"]).metadata.labels)}
    except RatioError:
        return {"error": True, "enabled": None}


def _normalization_moved(given: Json) -> object:
    try:
        old = parse_ratio(_node(given["oldNode"]).metadata.annotations)
    except RatioError:
        return {"needSync": True}
    try:
        new = parse_ratio(_node(given["newNode"]).metadata.annotations)
    except RatioError:
        # Never decided: what is written is a text with two decimals, or none.
        return {"needSync": False}
    return {"needSync": ratio_moved(old, new)}


# -- amplification -------------------------------------------------------------------------------------------------


def _amplification_calculate(given: Json) -> object:
    if given["config"] is None:
        return {"error": True}
    section = ratios_of(AMPLIFICATION, _without_nulls(given["config"]))
    metadata = _node(given["node"]).metadata
    try:
        strategy = select_ratios(section, metadata.labels)
        return {"error": False, "ratios": amplification_ratios(strategy, parse_ratio(metadata.annotations)) or None}
    except RatioError:
        return {"error": True}


def _amplification_moved(given: Json) -> object:
    old, new = (
        _node(given[which]).metadata.annotations.get(ANNOTATION_AMPLIFICATION_RATIO, "") for which in ("oldNode", "newNode")
    )
    return {"needSync": old != new}


def _parse_amplification(given: Json) -> object:
    try:
        return {"error": False, "ratio": parse_ratios(given["annotations"] or {}).get(given["resource"], -1)}
    except AmplificationError:
        return {"error": True, "ratio": -1}


def _raw_changed(given: Json) -> object:
    old, new = (None if given[which] is None else _allocatable(given[which]) or {} for which in ("oldNode", "newNode"))
    return {"changed": raw_changed(old, new)}


def _admit_status_update(given: Json) -> object:
    annotations = _node(given["node"]).metadata.annotations
    new = _allocatable(given["node"])
    old = None if given["oldNode"] is None else _allocatable(given["oldNode"]) or {}
    if not annotations.get(ANNOTATION_AMPLIFICATION_RATIO):
        return {"error": False, "allocatable": new, "rawAllocatable": None}
    if new is None:
        return {"error": False, "allocatable": None, "rawAllocatable": None}
    try:
        raw = written_raw(annotations, old, new)
        ratios = parse_ratios(annotations)
    except (AmplificationError, QuantityError):
        return {"error": True}
    more = {name: f"{amplified_milli(parse_milli(quantity), ratios.get(name, 1.0))}m" for name, quantity in raw.items()}
    found = {"error": False, "allocatable": {**new, **more}, "rawAllocatable": {name: str(raw[name]) for name in raw}}
    if raw_changed(old, new) and any(raw[name] != new.get(name) for name in raw):
        return mended(found, "$.allocatable*", "$.rawAllocatable*", trap="T14")
    return found


_NORMALIZATION: dict[str, Callable[[Json], object]] = {
    "calculate": _normalization_calculate,
    "ratio_from_model": _ratio_from_model,
    "parse_ratio": _parse_normalization,
    "parse_enabled": _parse_enabled,
    "need_sync_meta": _normalization_moved,
    "prepare": _prepare,
    "config_merge": lambda given: _config_merge(NORMALIZATION, given),
}
_AMPLIFICATION: dict[str, Callable[[Json], object]] = {
    "calculate": _amplification_calculate,
    "parse_ratio": _parse_amplification,
    "need_sync_meta": _amplification_moved,
    "raw_changed": _raw_changed,
    "admit_status_update": _admit_status_update,
    "prepare": lambda given: _prepare({**given, "op": "prepare_amplification"}),
    "config_merge": lambda given: _config_merge(AMPLIFICATION, given),
}
