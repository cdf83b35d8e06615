"""Nodes by usage score, highest first; pods of a hot node by how well they cover its excess (see `eviction.order`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant_descheduler_arbiter.eviction.order import PodRank, pod_rank
from cotenant_descheduler_arbiter.low_node_load.scoring import excess_score, usage_score
from cotenant_descheduler_arbiter.state.facts import PodFacts


def sort_pods_by_excess(
    pods: Sequence[tuple[PodFacts, Mapping[str, int] | None]],
    excess: Mapping[str, int],
    weights: Mapping[str, int],
) -> list[PodFacts]:
    """Return (pod, its usage or None) in the order that relieves a node: `excess` = usage - high of over-used resources."""

    backwards = sorted(pods, key=lambda item: item[0].key, reverse=True)
    return [facts for facts, _ in sorted(backwards, key=lambda item: rank_by_excess(item[0], item[1], excess, weights))]


def rank_by_excess(
    facts: PodFacts, usage: Mapping[str, int] | None, excess: Mapping[str, int], weights: Mapping[str, int]
) -> PodRank:
    """Return the keys of a pod on a node that is to be relieved."""
    score = excess_score(usage, excess, weights) if usage is not None else None
    return pod_rank(facts, score, by_usage=True)


def sort_nodes(
    nodes: Sequence[tuple[str, Mapping[str, int], Mapping[str, int]]],
    weights: Mapping[str, int],
    *,
    ascending: bool = False,
) -> list[str]:
    """Return node names by usage score, given (name, usage, allocatable); ties in the order of their names."""
    scored = [(usage_score(usage, allocatable, weights), name) for name, usage, allocatable in nodes]
    return [name for _, name in sorted(scored, key=lambda item: (item[0] if ascending else -item[0], item[1]))]
