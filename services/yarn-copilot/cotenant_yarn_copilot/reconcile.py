"""Reconciles one node: YARN's total there, and the foreign share from YARN's usage.

In: the node object and its NodeManager pods. Out: a NodePlan before the call to the ResourceManager, an Outcome after it.
Source: Koordinator YARN operator, one pass:

    no node                                    nothing
    the NodeManager's id is malformed          nothing, the foreign share is unchanged; named in `reason`
    no NodeManager (or no usable id)           foreign share 0, nothing is sent to the ResourceManager
    the batch figure cannot be read            nothing is sent, try again
    else                                       set the total (retry on failure); the foreign share is YARN's usage
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from cotenant.domain.third_party import ThirdPartyError
from cotenant.model.quantities import QuantityError, Scalar
from cotenant_yarn_copilot.batch_source import batch_of_node
from cotenant_yarn_copilot.capacity import BatchAmounts, Rounding, YarnResource, of_yarn, to_yarn
from cotenant_yarn_copilot.node_id import NodeIdError, PodLabels, YarnNodeId, yarn_node_of


class PlanKind(StrEnum):
    """What to do about a node."""

    NOTHING = "nothing"
    CLEAR = "clear"
    RETRY = "retry"
    GIVE = "give"


class NodePlan(msgspec.Struct, frozen=True):
    """What to do about a node; `node_id` and `total` with GIVE only."""

    kind: PlanKind
    node_id: YarnNodeId | None = None
    total: YarnResource = YarnResource()
    reason: str = ""


class SyncResult(msgspec.Struct, frozen=True):
    """The result of a plan. `foreign` None: the node's foreign share is unchanged."""

    again: bool
    failed: bool
    foreign: BatchAmounts | None = None


class KubernetesNode(msgspec.Struct, frozen=True):
    """The fields that are read from a node object."""

    name: str
    annotations: Mapping[str, str]
    allocatable: Mapping[str, Scalar]


def plan_node(node: KubernetesNode | None, pods: Sequence[PodLabels], rounding: Rounding = Rounding.EXACT) -> NodePlan:
    """Return the plan for a node object."""
    if node is None:
        return NodePlan(PlanKind.NOTHING, reason="the node is gone")
    try:
        node_id = yarn_node_of(node.name, pods)
    except NodeIdError as error:
        return NodePlan(PlanKind.NOTHING, reason=str(error))
    if node_id is None or not node_id.usable:
        return NodePlan(PlanKind.CLEAR, reason="no NodeManager on the node")
    try:
        batch = batch_of_node(node.annotations, node.allocatable)
    except (ThirdPartyError, QuantityError) as error:
        return NodePlan(PlanKind.RETRY, node_id, reason=str(error))
    return NodePlan(PlanKind.GIVE, node_id, to_yarn(batch, rounding))


def outcome_of(plan: NodePlan, *, update_failed: bool, used: YarnResource) -> SyncResult:
    """Return the outcome of a plan after its execution; `used`: YARN's usage as the ResourceManager reports it."""
    match plan.kind:
        case PlanKind.NOTHING:
            return SyncResult(again=False, failed=False)
        case PlanKind.CLEAR:
            return SyncResult(again=False, failed=False, foreign=BatchAmounts())
        case PlanKind.RETRY:
            return SyncResult(again=True, failed=True)
        case PlanKind.GIVE if update_failed:
            return SyncResult(again=True, failed=True)
        case _:
            return SyncResult(again=False, failed=False, foreign=of_yarn(used))


def used_of(node_id: YarnNodeId | None, reports: Mapping[str, Mapping[str, YarnResource]]) -> YarnResource:
    """Return the node's usage from its cluster's report (by cluster, then by `host:port`); zero if unknown."""
    if node_id is None:
        return YarnResource()
    return reports.get(node_id.cluster, {}).get(node_id.text, YarnResource())
