"""One node reconciled: what YARN shall be given, and what its use means for the node.

In: what is known of the node and its NodeManager. Out: a Plan before the ResourceManager is asked, an Outcome after.
Source: Koordinator YARN operator, one pass:

    no node                                    nothing
    the NodeManager's id is malformed          nothing, the foreign share stays as it is; named in `reason`
    no NodeManager (or no usable id)           foreign share 0, nothing is sent to the ResourceManager
    the batch figure cannot be read            nothing is sent, try again
    else                                       give the total (again, if that fails); the foreign share is YARN's use
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


class Plan(msgspec.Struct, frozen=True):
    """What to do about a node; `node_id` and `total` with GIVE only."""

    kind: PlanKind
    node_id: YarnNodeId | None = None
    total: YarnResource = YarnResource()
    reason: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """What came of it. `foreign` None: the node's foreign share is left as it was."""

    again: bool
    failed: bool
    foreign: BatchAmounts | None = None


class KubernetesNode(msgspec.Struct, frozen=True):
    """What is read of a node object."""

    name: str
    annotations: Mapping[str, str]
    allocatable: Mapping[str, Scalar]


def plan_node(node: KubernetesNode | None, pods: Sequence[PodLabels], rounding: Rounding = Rounding.EXACT) -> Plan:
    """Return what to do about a node object."""
    if node is None:
        return Plan(PlanKind.NOTHING, reason="the node is gone")
    try:
        node_id = yarn_node_of(node.name, pods)
    except NodeIdError as error:
        return Plan(PlanKind.NOTHING, reason=str(error))
    if node_id is None or not node_id.usable:
        return Plan(PlanKind.CLEAR, reason="no NodeManager on the node")
    try:
        batch = batch_of_node(node.annotations, node.allocatable)
    except (ThirdPartyError, QuantityError) as error:
        return Plan(PlanKind.RETRY, node_id, reason=str(error))
    return Plan(PlanKind.GIVE, node_id, to_yarn(batch, rounding))


def outcome_of(plan: Plan, *, update_failed: bool, used: YarnResource) -> Outcome:
    """Return what follows from a plan that was carried out; `used` is what the ResourceManager reports for the node."""
    match plan.kind:
        case PlanKind.NOTHING:
            return Outcome(again=False, failed=False)
        case PlanKind.CLEAR:
            return Outcome(again=False, failed=False, foreign=BatchAmounts())
        case PlanKind.RETRY:
            return Outcome(again=True, failed=True)
        case PlanKind.GIVE if update_failed:
            return Outcome(again=True, failed=True)
        case _:
            return Outcome(again=False, failed=False, foreign=of_yarn(used))


def used_of(node_id: YarnNodeId | None, reports: Mapping[str, Mapping[str, YarnResource]]) -> YarnResource:
    """Return the use that the node's cluster reports for it (by cluster, then by `host:port`); zero where it is unknown."""
    if node_id is None:
        return YarnResource()
    return reports.get(node_id.cluster, {}).get(node_id.text, YarnResource())
