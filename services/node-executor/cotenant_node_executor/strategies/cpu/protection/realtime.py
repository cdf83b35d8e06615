"""The real-time class: SCHED_FIFO for latency-sensitive pods that request it, with budgets and a guard.

In: the situation with the guard's demotions; the memory: budgets, and pods that have to wait. Out: the class of pods'
threads, and the budgets of the groups around them, from the subtree down to each container, if the kernel requires budgets
(`targets.other.realtime`). A pod that joins waits one decision for the others' budgets to be smaller, and one that takes a
place waits until it is free.

A pod that the guard demoted, or whose own latency shows that the class does not help it (`need`), is in the fair
class for COOL_DOWN_NS; one with a latency goal returns only when it is late there. If the guard refuses altogether nothing
is requested meanwhile, and that is a problem. With budgets at most MOST_PODS pods have the class: those that have it, then
those that are late, then the first by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cotenant.domain.qos import KubeQoS
from cotenant_node_executor.strategies.cpu.protection.classes import CLASS_SHAPES, inputs, protected
from cotenant_node_executor.strategies.cpu.protection.need import NO_NEED, Need, need
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.sections import CPU_PART, QOS
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Cause, Desired, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place, RealtimeAttribute, RealtimeThreads
from cotenant_node_executor.targets.interface import BURSTABLE, ROOT_GROUP, Knob
from cotenant_node_executor.targets.other.realtime import (
    FAIR,
    MOST_PODS,
    POD_PERIOD_US,
    REALTIME,
    SECOND_US,
    SUBTREE_US,
    pod_share_us,
)

NAME = "realtime"
COOL_DOWN_NS = 60_000_000_000


class RealtimeMemory(Struct, frozen=True):
    """`share_us`: each pod's budget at the last decision; `groups`: the pods that have one; `waiting`: pods in the fair class
    until when, in monotonic ns, and why; `refused`: why no pod can have it, and until when that is assumed."""

    share_us: int = 0
    groups: frozenset[str] = frozenset()
    waiting: dict[str, tuple[int, str]] = {}
    refused_until: int = 0
    refused: str = ""
    need: Need = NO_NEED


NOTHING = RealtimeMemory()


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """Classes and budgets."""
    before = memory if isinstance(memory, RealtimeMemory) else NOTHING
    budgeted = situation.capabilities.supports(Knob.CPU_RT_RUNTIME)
    found = protected(situation)
    asking = () if found is None else found.realtime
    if not asking and before == NOTHING:
        # An executor that was killed may have left budgets: once they are desired to be 0.
        found_before = {} if memory is not None or not budgeted else _none(situation)
        return StrategyDecision(found_before, memory=NOTHING, problems=() if found is None else found.problems)
    now = situation.snapshot.monotonic_ns if situation.snapshot is not None else 0
    problems = list(found.problems) if found is not None else []
    refused_until, refused = before.refused_until, before.refused
    if situation.realtime.refused and before.groups:
        refused_until, refused = now + COOL_DOWN_NS, situation.realtime.refused
    needed = need(situation, before.need, asking, before.groups)
    waiting = {
        group: each
        for group, each in before.waiting.items()
        if group in situation.pods and (each[0] > now or needed.stays_fair(group))
    }
    for group, why in (needed.let_go(before.groups) | dict(situation.realtime.taken)).items():
        if group in before.groups:
            waiting.setdefault(group, (now + COOL_DOWN_NS, why))
    if refused_until > now and asking:
        problems.append(f"the real-time class: {refused}")
    by_need = needed.by_need(asking, before.groups, waiting) if budgeted else asking
    able = by_need[:MOST_PODS] if budgeted else asking
    too_many = f"the real-time class is for {MOST_PODS} pods"
    problems += [f"pod {each.namespace}/{each.name}: {too_many}" for each in by_need[len(able) :]]
    wanted = [pod for pod in able if pod.group not in waiting] if refused_until <= now else []
    share = pod_share_us(len(wanted)) if wanted else 0
    left = before.groups - {pod.group for pod in wanted}
    if left:
        share = min(share, before.share_us)
    ready = not budgeted or not before.groups or (share >= before.share_us and not left)
    given = [pod for pod in wanted if ready or pod.group in before.groups]
    desired: dict[Place, tuple[Desired, ...]] = {}
    if budgeted and given:
        desired |= _budgets(given, share)
    for pod in given:
        why = "a class that best-effort work never interrupts"
        desired[RealtimeThreads(pod.group)] = (Desired(RealtimeAttribute.CLASS, REALTIME, NAME, why),)
    for group in sorted(before.groups - {pod.group for pod in given}):
        if group in situation.pods:
            why = waiting[group][1] if group in waiting else refused if refused_until > now else "no longer requested"
            desired[RealtimeThreads(group)] = (Desired(RealtimeAttribute.CLASS, FAIR, NAME, why),)
    groups = frozenset(pod.group for pod in given)
    needed = needed.after(groups ^ before.groups) if asking else NO_NEED
    memory = RealtimeMemory(share, groups, waiting, refused_until, refused, needed)
    return StrategyDecision(desired, memory=memory, problems=tuple(problems))


def _budgets(pods: Sequence[PodView], share_us: int) -> dict[Place, tuple[Desired, ...]]:
    """The budgets of the subtree, of the burstable directory, of pods and containers."""
    why = f"{share_us / SECOND_US:.3f} of each CPU for each of {len(pods)} real-time pods"
    found: dict[Place, tuple[Desired, ...]] = {ROOT_GROUP: _second(SUBTREE_US, why)}
    burstable = sum(pod.kube_qos is KubeQoS.BURSTABLE for pod in pods)
    if burstable:
        found[BURSTABLE] = _second(burstable * share_us, why)
    for pod in pods:
        runtime = share_us * (POD_PERIOD_US // SECOND_US)
        containers = pod.groups[1:]
        found[pod.group] = _period(runtime, why)
        found |= {group: _period(runtime // len(containers), why) for group in containers}
    return found


def _none(situation: Situation) -> dict[Place, tuple[Desired, ...]]:
    """No budget for any group."""
    groups = (ROOT_GROUP, BURSTABLE, *(group for pod in situation.pods.values() for group in pod.groups))
    return {group: _second(0, "no real-time pods") for group in sorted(groups)}


def _second(runtime_us: int, why: str) -> tuple[Desired, ...]:
    return (Desired(Knob.CPU_RT_RUNTIME, str(runtime_us), NAME, why),)


def _period(runtime_us: int, why: str) -> tuple[Desired, ...]:
    period = Desired(Knob.CPU_RT_PERIOD, str(POD_PERIOD_US), NAME, why)
    return (period, Desired(Knob.CPU_RT_RUNTIME, str(runtime_us), NAME, why))


def _figures(memory: Struct | None) -> dict[str, int]:
    return (
        {"pods.realtime": len(memory.groups), "pods.waiting": len(memory.waiting)} if isinstance(memory, RealtimeMemory) else {}
    )


STRATEGY = Strategy(
    name=NAME,
    topic="protection",
    sets=(Knob.CPU_RT_PERIOD, Knob.CPU_RT_RUNTIME, RealtimeAttribute.CLASS),
    decide=decide,
    inputs=inputs,
    cause=Cause.USAGE,
    figures=_figures,
    section=QOS,
    part=CPU_PART,
    reads=CLASS_SHAPES,
)
