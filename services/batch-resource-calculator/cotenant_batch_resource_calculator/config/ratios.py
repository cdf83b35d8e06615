"""`cpu-normalization-config` and `resource-amplification-config`: ratios, for the cluster and for groups of nodes.

In: a section's text. Out: the section in force, or a ConfigError; the strategy of a node by its labels. Source: Koordinator
slo-controller-config: fields on the top level, node entries in `nodeConfigs`, each laid over the cluster's. Of a map (models,
resources) the entry's keys replace the cluster's, whole values at a time; the first entry whose selector matches counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.domain.selectors import selects_if_valid
from cotenant_batch_resource_calculator.config.json_overlay import (
    ConfigError,
    JsonObject,
    camel_name,
    canonical,
    decode_object,
    fit,
    overlay,
)

NORMALIZATION_KEY = "cpu-normalization-config"
AMPLIFICATION_KEY = "resource-amplification-config"


class ModelRatios(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """Performance of one CPU model relative to the reference: without and with hyper-threading and turbo; None: not set."""

    base_ratio: float | None = None
    hyper_thread_enabled_ratio: float | None = None
    turbo_enabled_ratio: float | None = None
    hyper_thread_turbo_enabled_ratio: float | None = None


class NormalizationStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """Ratios by the model's name as the machine reports it; `default_ratio` for models and states that are not listed."""

    enable: bool | None = None
    ratio_model: dict[str, ModelRatios] = {}
    default_ratio: float | None = None


class AmplificationStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """Ratios by resource name."""

    enable: bool | None = None
    resource_amplification_ratio: dict[str, float] = {}


StrategyT = TypeVar("StrategyT", NormalizationStrategy, AmplificationStrategy)


class RatioSectionKind(msgspec.Struct, Generic[StrategyT], frozen=True):
    """One of the sections: its key, its shape, its defaults."""

    key: str
    shape: type[StrategyT]
    defaults: JsonObject


class RatioSection(msgspec.Struct, Generic[StrategyT], frozen=True):
    """A section in force: the cluster's strategy and the node entries in order, as documents and in typed form. `given`: the
    ConfigMap has the key."""

    cluster: JsonObject
    strategy: StrategyT
    entries: tuple[tuple[LabelSelector | None, JsonObject, StrategyT], ...] = ()
    given: bool = True


NORMALIZATION = RatioSectionKind(NORMALIZATION_KEY, NormalizationStrategy, {"enable": False, "ratioModel": {}})
AMPLIFICATION = RatioSectionKind(AMPLIFICATION_KEY, AmplificationStrategy, {"enable": False})


class _Selected(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name):
    node_selector: LabelSelector | None = None


def load_ratios(kind: RatioSectionKind[StrategyT], text: str | None) -> RatioSection[StrategyT]:
    """Parse a section; without text the defaults. Raises ConfigError."""
    if text is None:
        return RatioSection(kind.defaults, fit(kind.defaults, kind.shape, kind.key), given=False)
    return ratios_of(kind, decode_object(text, kind.key))


def ratios_of(kind: RatioSectionKind[StrategyT], given: JsonObject) -> RatioSection[StrategyT]:
    """Return the section of a decoded document, laid over the defaults. Raises ConfigError."""
    cluster = overlay(kind.defaults, _spelled(kind, given))
    strategy = fit(cluster, kind.shape, kind.key)
    listed = {key.lower(): value for key, value in given.items()}.get("nodeconfigs")
    if listed is not None and not isinstance(listed, list):
        raise ConfigError(f"{kind.key}: nodeConfigs must be a list")
    entries = []
    for index, entry in enumerate(listed or []):
        where = f"{kind.key}: nodeConfigs[{index}]"
        if not isinstance(entry, dict):
            raise ConfigError(f"{where} must be an object")
        merged = overlay(cluster, _spelled(kind, entry))
        selector = fit(canonical(entry, _Selected), _Selected, where).node_selector
        entries.append((selector, merged, fit(merged, kind.shape, where)))
    return RatioSection(cluster, strategy, tuple(entries))


def _spelled(kind: RatioSectionKind[StrategyT], given: JsonObject) -> JsonObject:
    document = canonical(given, kind.shape)
    models = document.get("ratioModel")
    if isinstance(models, dict):
        spelled: JsonObject = {
            name: canonical(model, ModelRatios) if isinstance(model, dict) else model for name, model in models.items()
        }
        document["ratioModel"] = spelled
    return document


def select_ratios(section: RatioSection[StrategyT], labels: Mapping[str, str]) -> StrategyT:
    """Return the strategy of a node with these labels."""
    for selector, _, strategy in section.entries:
        if selects_if_valid(selector, labels):
            return strategy
    return section.strategy
