"""A node's inputs besides usage: the strategy, the ratios, the foreign share, device totals.

In: the node's state and the configuration. Out: the situation, with a note on each input that could not be used. A rejected
section, a foreign share that cannot be read and a ratio that cannot be found leave in force what the node's last event has.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.domain.third_party import HADOOP_YARN, ThirdPartyError, batch_total, parse_allocations
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, LABEL_CPU_NORMALIZATION_ENABLED
from cotenant_batch_resource_calculator.config import colocation
from cotenant_batch_resource_calculator.config.colocation import ColocationStrategy, SelectedStrategy
from cotenant_batch_resource_calculator.config.in_force import Configuration
from cotenant_batch_resource_calculator.config.json_overlay import ConfigError, JsonValue
from cotenant_batch_resource_calculator.config.ratios import AMPLIFICATION_KEY, NORMALIZATION_KEY, select_ratios
from cotenant_batch_resource_calculator.config.risk import RiskBudget, read_risk_budget
from cotenant_batch_resource_calculator.formulas.amounts import Amounts
from cotenant_batch_resource_calculator.formulas.amplification import amplification
from cotenant_batch_resource_calculator.formulas.evaluation import (
    batch_strategy,
)
from cotenant_batch_resource_calculator.formulas.normalization import RatioError, normalization, parse_ratio
from cotenant_batch_resource_calculator.formulas.placing import normalization_ratio, ratio_of
from cotenant_batch_resource_calculator.node_state import HardwareFields, NodeSettings, NodeState, amounts

CONFIG_REJECTED = "ConfigRejected"
MAX_NAME = 100
"""Of an entry's name that messages show."""
PLUGINS_OF_INPUTS = ("CPUNormalization", "ResourceAmplification", "GPUDeviceResource", "RDMADeviceResource")
"""Koordinator's names of the calculations whose input may be unusable."""


def situation_of(state: NodeState, configuration: Configuration) -> NodeSettings:
    """Return a node's inputs from the configuration, the object and YARN, independent of its metric."""
    labels, annotations = state.labels, state.annotations
    base, cluster_enable = _base_strategy(state, configuration, labels)
    strategy, ignored = colocation.on_node(base, labels, annotations)
    foreign, foreign_note = _foreign(state)
    normalized, normalization_note = _normalization(state, configuration, labels)
    amplified, amplification_note = _amplification(state, configuration, labels, normalized)
    budget, budget_note = _budget(strategy)
    rejected = configuration.rejection(colocation.KEY, NORMALIZATION_KEY, AMPLIFICATION_KEY)
    errors = (ignored, budget_note, foreign_note, normalization_note, amplification_note)
    entry = _entry_text(base)
    notes = [note for note in (entry, *errors, state.devices.error, state.reservation().error) if note]
    inputs = (normalization_note, amplification_note, state.devices.error, state.devices.error)
    if rejected:
        notes.append(f"the ConfigMap's section was rejected and the previous one stays in force: {rejected}")
    return NodeSettings(
        strategy=strategy,
        policies=batch_strategy(strategy),
        base=base.text,
        cluster_enable=cluster_enable,
        config=configuration.source,
        foreign=foreign,
        ratio=float(normalized) if normalized else normalization_ratio(annotations),
        shape=HardwareFields(normalized, amplified, state.devices),
        budget=budget,
        group=base.group,
        reason=CONFIG_REJECTED if rejected else "",
        notes=tuple(notes),
        failed=tuple(plugin for plugin, note in zip(PLUGINS_OF_INPUTS, inputs, strict=True) if note),
    )


def _entry_text(base: SelectedStrategy) -> str:
    """Say which node entry the strategy is from, or why it is not from the entry that selects the node."""
    name = base.group[:MAX_NAME]
    if base.fault:
        return f"the cluster's strategy counts in place of the node entry {name}, as its {base.fault}"
    return f"strategy of the node entry {name}" if name else ""


def _budget(strategy: ColocationStrategy) -> tuple[RiskBudget | None, str]:
    try:
        return read_risk_budget(strategy.extensions, batch_strategy(strategy).cpu_reclaim_percent), ""
    except ConfigError as error:
        return None, str(error)


def _normalization(state: NodeState, configuration: Configuration, labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the text of the ratio, and a note. Empty: the object's own annotation counts, as long as neither the ConfigMap nor
    the node's label says anything of normalisation."""
    section = configuration.normalization
    kept = state.published.cpu_normalization if state.published is not None else ""
    if ratio_of(kept) is None:
        kept = ""
    if section is None:
        return kept, ""
    if not section.given and LABEL_CPU_NORMALIZATION_ENABLED not in labels:
        return "", ""
    try:
        return normalization(labels, select_ratios(section, labels), state.cpu_info()), ""
    except RatioError as error:
        return kept, f"CPU normalisation: {error}" + (f"; the ratio {kept} stays" if kept else "")


def _amplification(
    state: NodeState, configuration: Configuration, labels: Mapping[str, str], normalized: str
) -> tuple[dict[str, float], str]:
    """Return the ratios by resource, and a note."""
    section = configuration.amplification
    kept = state.published.amplification if state.published is not None else {}
    if section is None:
        return kept, ""
    try:
        ratio = float(normalized) if normalized else parse_ratio(state.annotations)
        return amplification(select_ratios(section, labels), ratio), ""
    except RatioError as error:
        return kept, f"amplification: {error}" + ("; the previous ratios stay" if kept else "")


def _base_strategy(
    state: NodeState, configuration: Configuration, labels: Mapping[str, str]
) -> tuple[SelectedStrategy, bool]:
    """Return the strategy without the node's own annotation and labels, and whether the cluster enables colocation."""
    config = configuration.colocation
    if config is not None:
        return colocation.choose(config, labels), config.cluster.get("enable") is True
    last = state.published
    if last is None:
        return _DEFAULTS, False
    kept: JsonValue = msgspec.json.decode(last.strategy)
    if not isinstance(kept, dict):
        return _DEFAULTS, last.cluster_enable
    try:
        return colocation.chosen(kept, last.risk.group if last.risk is not None else ""), last.cluster_enable
    except ConfigError:
        return _DEFAULTS, last.cluster_enable


_DEFAULTS = colocation.chosen(colocation.STRATEGY_DEFAULTS, given=frozenset())


def _foreign(state: NodeState) -> tuple[Amounts, str]:
    """Return the foreign share: the node's annotation, with its YARN entry replaced by YARN's own report."""
    try:
        total = batch_total(parse_allocations(state.annotations), replaced=HADOOP_YARN if state.yarn is not None else "")
    except ThirdPartyError as error:
        last = state.published
        kept = amounts(last.third_party) if last is not None else Amounts()
        return kept, f"the last known foreign share stays: {error}"
    annotated = Amounts(total.get(BATCH_CPU, 0), total.get(BATCH_MEMORY, 0))
    return (annotated + amounts(state.yarn.used) if state.yarn is not None else annotated), ""
