"""How a node's metrics are collected: aggregation window, report interval, windows of percentiles, which memory counts.

In: the colocation section in force, the node's own annotation and labels, the policy before. Out: the policy, as the `spec` of
the node's NodeMetric has it. Source: Koordinator NodeMetric controller.

    no ConfigMap, or its colocation section is rejected    the policy before stays; the defaults where there is none
    colocation off on the node, or a strategy out of range the defaults
    else                                                   the strategy's metric fields
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant_batch_resource_calculator.config import colocation
from cotenant_batch_resource_calculator.config.colocation import AggregatePolicy, ColocationConfig, ColocationStrategy
from cotenant_batch_resource_calculator.config.json_overlay import camel_name

DEFAULT_STRATEGY = colocation.chosen(colocation.STRATEGY_DEFAULTS).strategy


class CollectPolicy(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """`metricCollectPolicy` of a NodeMetric's spec."""

    aggregate_duration_seconds: int | None = None
    report_interval_seconds: int | None = None
    node_aggregate_policy: AggregatePolicy | None = None
    node_memory_collect_policy: str | None = None


NOTHING_KNOWN: Mapping[int, CollectPolicy] = {}


def collect_policy(
    config: ColocationConfig | None,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    before: CollectPolicy | None,
    known: Mapping[int, CollectPolicy] = NOTHING_KNOWN,
) -> CollectPolicy:
    """Return the node's policy; `config` None: no ConfigMap, or a rejected section. `before`: the node's last one; `known`: the
    policies of `config`'s own strategies (`policies_of`), which need no second look."""
    if config is None:
        return before if before is not None else _policy(DEFAULT_STRATEGY)
    strategy, _ = colocation.on_node(colocation.choose(config, labels), labels, annotations)
    policy = known.get(id(strategy))
    return policy if policy is not None else _in_force(strategy)


def policies_of(config: ColocationConfig) -> Mapping[int, CollectPolicy]:
    """Return the policy of each strategy of a configuration, by the strategy's identity."""
    return {id(choice.strategy): _in_force(choice.strategy) for choice in config.choices}


def _in_force(strategy: ColocationStrategy) -> CollectPolicy:
    valid = strategy.enable is True and not colocation.out_of_range(strategy)
    return _policy(strategy if valid else DEFAULT_STRATEGY)


def _policy(strategy: ColocationStrategy) -> CollectPolicy:
    return CollectPolicy(
        aggregate_duration_seconds=strategy.metric_aggregate_duration_seconds,
        report_interval_seconds=strategy.metric_report_interval_seconds,
        node_aggregate_policy=strategy.metric_aggregate_policy,
        node_memory_collect_policy=strategy.metric_memory_collect_policy,
    )
