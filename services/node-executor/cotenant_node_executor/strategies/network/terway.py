"""The files that terway-qos reads (`netQOSPolicy: terway-qos`, gate TerwayQoS).

In: the situation. Out: `global_bps_config`, a line for each limit of the node and of the classes L1 (latency-sensitive) and L2
(best-effort), and `pod.json`, an object of pods by uid: name, namespace, priority (0 system, 1 latency-sensitive, 2
best-effort), control group, own limits. Both are gone without the policy. Bandwidths are bytes a second.

Upstream divides totals and quantities by 8, percentages not, although all fields are in bytes; here percentages are of the
total in bytes too, so that 50 % is half of it. Source: Koordinator's terway-qos plugin, terway-qos.
"""

from __future__ import annotations

import json

from msgspec import Struct

from cotenant.domain.qos import QoSClass
from cotenant_node_executor.strategies.network.bandwidth import (
    PART,
    SHAPES,
    TERWAY,
    Bandwidth,
    Network,
    bandwidth,
    is_best_effort,
    pod_limits,
)
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.sections import QOS, is_asked
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Desired, Input, NodePolicy, Strategy, StrategyDecision, no_decision
from cotenant_node_executor.targets.address import Place, TerwayAttribute, TerwayFile

NAME = "terway-qos"
GATE = "TerwayQoS"
NODE_FILE, POD_FILE = TerwayFile("global_bps_config"), TerwayFile("pod.json")
CGROUP_ROOT = "/sys/fs/cgroup/net_cls"


def node_text(of: Bandwidth) -> str:
    """The node's file."""
    total = of.total // 8
    rows: dict[str, int] = {"hw_tx_bps_max": total, "hw_rx_bps_max": total}
    for level, stated in (("l1", of.ls), ("l2", of.be)):
        each = stated or Network()
        rows |= {
            f"offline_{level}_tx_bps_min": each.egress_request // 8,
            f"offline_{level}_tx_bps_max": each.egress_limit // 8,
            f"offline_{level}_rx_bps_min": each.ingress_request // 8,
            f"offline_{level}_rx_bps_max": each.ingress_limit // 8,
        }
    return "".join(f"{name} {value}\n" for name, value in rows.items())


def priority(pod: PodView) -> int:
    """A pod's priority on the network."""
    return 0 if pod.qos is QoSClass.SYSTEM else 2 if is_best_effort(pod) else 1


def write_files(situation: Situation, _memory: Struct | None) -> StrategyDecision:
    """Both files."""
    of = bandwidth(situation.slo) if situation.slo is not None else Bandwidth()
    if of.policy != TERWAY:
        return StrategyDecision()
    problems: list[str] = []
    pods: dict[str, object] = {}
    for pod in sorted(situation.pods.values(), key=lambda pod: pod.uid):
        try:
            ingress, egress = pod_limits(pod)
        except ValueError as error:
            problems.append(str(error))
            continue
        pods[pod.uid] = {
            "podName": pod.name,
            "podNamespace": pod.namespace,
            "podUID": pod.uid,
            "prio": priority(pod),
            "cgroupDir": f"{CGROUP_ROOT}/{situation.capabilities.root}/{pod.group}",
            "qosConfig": {"ingressBandwidth": ingress // 8, "egressBandwidth": egress // 8},
        }
    texts = {NODE_FILE: node_text(of), POD_FILE: json.dumps(pods, separators=(",", ":"))}
    values: dict[Place, tuple[Desired, ...]] = {
        place: (Desired(TerwayAttribute.TEXT, text, NAME, "for terway-qos"),) for place, text in texts.items()
    }
    return StrategyDecision(values, problems=tuple(problems))


def strategy(gates: frozenset[str]) -> Strategy:
    """Return the strategy; without its gate it does nothing."""

    def inputs(policy: NodePolicy) -> frozenset[Input]:
        asked = GATE in gates and is_asked(policy.slo, lambda slo: bandwidth(slo).policy == TERWAY)
        return frozenset((Input.PODS,) if asked else ())

    return Strategy(
        name=NAME,
        topic="network",
        sets=(TerwayAttribute.TEXT,),
        decide=write_files if GATE in gates else no_decision,
        inputs=inputs,
        section=QOS,
        part=PART,
        reads=SHAPES,
    )
