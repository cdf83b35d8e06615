"""Traffic classes of the default route's device (`netQOSPolicy: tc`, gate TCNetworkQoS).

In: the situation. Out: the device's HTB classes, and the class of each pod's egress. Within the total, class 1:1:

    1:2  prio 1  everything else, the node's own   the rest, at most 40 %       up to the total
    1:3  prio 2  latency-sensitive pods             egressRequest, else 30 %     up to egressLimit
    1:4  prio 3  best-effort pods                   egressRequest, else 30 %     up to egressLimit
    1:10 ...     pods with a limit of their own     their limit, at least the kernel's 8 bits

A lower number of `prio` is served first if there is spare bandwidth. Only egress is shaped, as HTB cannot do more, and
an ingressLimit is reported as a problem. Nothing is done without a total, without the gate, or on a device whose
queueing discipline another program has set. A pod keeps the number of its class while it exists.

Source: Koordinator's network QoS by tc; upstream classifies packets by net_cls, iptables and addresses of pods, here
it is done by control group (`targets.other.egress`), which also distinguishes pods without an address of their own.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant.domain.qos import QoSClass
from cotenant_node_executor.strategies.network.bandwidth import (
    PART,
    SHAPES,
    TC,
    Bandwidth,
    Network,
    bandwidth,
    is_best_effort,
    pod_limits,
)
from cotenant_node_executor.strategies.sections import QOS, is_asked
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Desired, Input, NodePolicy, Strategy, StrategyDecision, no_decision
from cotenant_node_executor.targets.address import EgressAttribute, EgressClass, Place, TcTree, TcTreeAttribute

NAME = "tc"
GATE = "TCNetworkQoS"
ROOT, SYSTEM, LS, BE = "1:1", "1:2", "1:3", "1:4"
FIRST_OF_PODS, MOST_OF_PODS = 16, 200
SYSTEM_PERCENT, CLASS_PERCENT = 40, 30
LEAST_BITS = 8


class Numbered(Struct, frozen=True):
    """The minor number of each pod's own class, by uid."""

    minors: dict[str, int] = {}


def tree(of: Bandwidth, pods: dict[int, tuple[int, int]]) -> str:
    """The hierarchy. `pods`: priority and limit by minor number."""
    (ls, ls_ceiling), (be, be_ceiling) = (_share(each, of.total) for each in (of.ls, of.be))
    system = max(min(of.total * SYSTEM_PERCENT // 100, of.total - ls - be), LEAST_BITS)
    rows = [
        (ROOT, 0, of.total, of.total),
        (SYSTEM, 1, system, of.total),
        (LS, 2, ls, ls_ceiling),
        (BE, 3, be, be_ceiling),
        *((f"1:{minor:x}", prio, limit, limit) for minor, (prio, limit) in sorted(pods.items())),
    ]
    return ";".join(" ".join(str(part) for part in row) for row in rows)


def _share(of: Network | None, total: int) -> tuple[int, int]:
    """A class's rate and ceiling."""
    stated = of or Network()
    ceiling = min(stated.egress_limit or total, total)
    rate = stated.egress_request or total * CLASS_PERCENT // 100
    return max(min(rate, ceiling), LEAST_BITS), max(ceiling, LEAST_BITS)


def shape(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """The classes, while the policy is tc and a total is stated."""
    before = memory if isinstance(memory, Numbered) else Numbered()
    of = bandwidth(situation.slo) if situation.slo is not None else Bandwidth()
    device = situation.node.network_device
    if of.policy != TC or of.total < LEAST_BITS or not device:
        missing = of.policy == TC and of.total >= LEAST_BITS
        return StrategyDecision(
            memory=Numbered(), problems=("no device has the default route: nothing to shape",) if missing else ()
        )
    problems: list[str] = []
    limits: dict[str, int] = {}
    for _, pod in sorted(situation.pods.items()):
        try:
            ingress, egress = pod_limits(pod)
        except ValueError as error:
            problems.append(str(error))
            continue
        if ingress:
            problems.append(f"pod {pod.namespace}/{pod.name}: ingressLimit: tc shapes what is sent only")
        if egress:
            limits[pod.uid] = max(min(egress, of.total), LEAST_BITS)
    minors = _numbered(before, [*limits])
    problems += [f"uid {uid}: {MOST_OF_PODS} pods have a class of their own already" for uid in sorted(limits.keys() - minors)]
    desired: dict[Place, tuple[Desired, ...]] = {}
    own: dict[int, tuple[int, int]] = {}
    for group, pod in sorted(situation.pods.items()):
        if pod.qos is QoSClass.SYSTEM:
            continue
        best_effort, minor = is_best_effort(pod), minors.get(pod.uid)
        if minor is not None:
            own[minor] = (3 if best_effort else 2), limits[pod.uid]
        name = f"1:{minor:x}" if minor is not None else BE if best_effort else LS
        why = "its own limit" if minor is not None else "best-effort" if best_effort else "latency-sensitive"
        desired[EgressClass(group)] = (Desired(EgressAttribute.CLASS, name, NAME, f"traffic class: {why}"),)
    why = f"{of.total} bits/s of {device}"
    desired[TcTree(device)] = (Desired(TcTreeAttribute.CLASSES, tree(of, own), NAME, why),)
    return StrategyDecision(desired, memory=Numbered(minors), problems=tuple(problems))


def _numbered(before: Numbered, uids: list[str]) -> dict[str, int]:
    """Each pod's number: the one that it has, else the lowest that is free."""
    kept = {uid: before.minors[uid] for uid in uids if uid in before.minors}
    free = iter(sorted(set(range(FIRST_OF_PODS, FIRST_OF_PODS + MOST_OF_PODS)) - set(kept.values())))
    return kept | dict(zip([uid for uid in uids if uid not in kept], free, strict=False))


def strategy(gates: frozenset[str]) -> Strategy:
    """Return the strategy; without its gate it does nothing."""

    def inputs(policy: NodePolicy) -> frozenset[Input]:
        asked = GATE in gates and is_asked(policy.slo, lambda slo: bandwidth(slo).total > 0)
        return frozenset((Input.PODS,) if asked else ())

    return Strategy(
        name=NAME,
        topic="network",
        sets=(TcTreeAttribute.CLASSES, EgressAttribute.CLASS),
        decide=shape if GATE in gates else no_decision,
        inputs=inputs,
        section=QOS,
        part=PART,
        reads=SHAPES,
    )
