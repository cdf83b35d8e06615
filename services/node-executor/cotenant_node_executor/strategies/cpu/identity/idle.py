"""CPU identity on a mainline kernel: `cpu.idle` for each batch pod, raised shares for the latency-sensitive ones.

In: the situation, or a pod's shape; applies on kernels without group identity. Out: cpu.idle 1 for pods whose identity
gives way (-1) and 0 for every other; shares of groups with a latency-sensitive identity (1, 2) multiplied by one factor a
level, so that the largest reaches the kernel's maximum and their ratios stay.

Only pods become idle here. The best-effort directory as a whole is `spread`'s: while cpu.idle is 1 the kernel refuses every
write of cpu.shares (EINVAL), so the composer leaves out its shares then. Measured on a mainline kernel: next to saturating
batch work, cpu.idle reduces a service's p99 from 1.96 to 1.20 times its p99 on an idle node.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant.domain.qos import KubeQoS
from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.strategies.cpu.identity.group_identity import IdentityRule
from cotenant_node_executor.strategies.cpu.identity.strategy import effective_identity, rule_of
from cotenant_node_executor.strategies.pod_view import PodShape
from cotenant_node_executor.strategies.pods.pod_values import group_shares
from cotenant_node_executor.strategies.sections import CPU_PART, QOS
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import (
    Desired,
    DesiredValues,
    Input,
    NodePolicy,
    PodDesired,
    Strategy,
    StrategyDecision,
)
from cotenant_node_executor.targets.address import Place
from cotenant_node_executor.targets.convert import MAX_SHARES
from cotenant_node_executor.targets.interface import BURSTABLE, Knob, NodeCapabilities

NAME = "idle"


def of_pod(pod: PodShape, policy: NodePolicy) -> PodDesired:
    """A pod's cpu.idle."""
    rule = idle_rule(policy.slo, policy.capabilities)
    if rule is None:
        return PodDesired()
    gives_way = rule.enable and effective_identity(rule, pod) < 0
    why = "identity -1: runs only on idle CPU time" if gives_way else "identity not below 0"
    return PodDesired(pod=(Desired(Knob.CPU_IDLE, "1" if gives_way else "0", NAME, why),))


def decide(situation: Situation, _memory: Struct | None) -> StrategyDecision:
    """Shares of the latency-sensitive groups while the rule is on."""
    rule = idle_rule(situation.slo, situation.capabilities)
    return StrategyDecision(_raised(situation, rule)) if rule is not None and rule.enable else StrategyDecision()


def idle_rule(slo: NodeSLORendered | None, capabilities: NodeCapabilities) -> IdentityRule | None:
    """The rule; None where this strategy does not apply."""
    rule = rule_of(slo)
    if rule is None or capabilities.supports(Knob.CPU_BVT) or not capabilities.supports(Knob.CPU_IDLE):
        return None
    return rule


def _raised(situation: Situation, rule: IdentityRule) -> DesiredValues:
    """Multiply the shares of siblings by one factor: guaranteed pods and the burstable directory, then burstable pods."""
    shares = group_shares(situation)
    sensitive = [pod for pod in situation.pods.values() if effective_identity(rule, pod.shape) > 0]
    burstable = [pod.group for pod in sensitive if pod.kube_qos is KubeQoS.BURSTABLE]
    top = [pod.group for pod in sensitive if pod.kube_qos is KubeQoS.GUARANTEED]
    if burstable:
        top.append(BURSTABLE)
    desired: dict[Place, tuple[Desired, ...]] = {}
    for level in (top, burstable):
        factor = MAX_SHARES // max((shares[group] for group in level), default=MAX_SHARES)
        why = f"latency-sensitive: shares x {factor}"
        desired |= {group: (Desired(Knob.CPU_SHARES, str(shares[group] * factor), NAME, why),) for group in sorted(level)}
    return desired


def _inputs(policy: NodePolicy) -> frozenset[Input]:
    rule = idle_rule(policy.slo, policy.capabilities)
    return frozenset((Input.PODS,) if rule is not None and rule.enable else ())


STRATEGY = Strategy(
    name=NAME,
    topic="identity",
    sets=(Knob.CPU_IDLE, Knob.CPU_SHARES),
    of_pod=of_pod,
    decide=decide,
    inputs=_inputs,
    section=QOS,
    part=CPU_PART,
)
