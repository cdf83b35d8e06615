"""Samples of a simulated machine: what is worked out for the pods that changed is what all of them use."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from cotenant_node_executor.runtime.interface import ContainerState, Forget, PodToRun, Start, Stop
from cotenant_node_executor.simulated.containers import SimulatedRuntime
from cotenant_node_executor.simulated.files import SimulatedFiles
from cotenant_node_executor.simulated.groups import SimulatedGroups
from cotenant_node_executor.simulated.machine import NodeSize, simulated_facts
from cotenant_node_executor.simulated.sampler import BOUND_QUOTA, SimulatedSampler
from cotenant_node_executor.strategies.pod_view import pod_view
from cotenant_node_executor.targets.interface import CgroupVersion, Knob
from tests.unit.node_executor.builders_node_executor import NODE, START, batch, service

SECOND = timedelta(seconds=1)
FACTS = simulated_facts(NODE, NodeSize(8_000, 8 << 30))
USAGES = ("cpu=500m,memory=64Mi", "cpu=3,memory=3Gi", "cpu=200m..4,memory=1Gi..4Gi,period=20s", "cpu=6")


def to_run(number: int) -> PodToRun:
    """One of six pods: services and batch pods, of constant and of moving use."""
    build = batch if number % 2 else service
    entry = build(f"p{number}", annotations={"cotenant.io/simulated-usage": USAGES[number % len(USAGES)]})
    return PodToRun(pod=entry, group=pod_view(entry).group, node=NODE)


PODS = {pod.uid: pod for pod in map(to_run, range(6))}
GROUPS = st.sampled_from([pod.group for pod in PODS.values()])
WRITES = st.one_of(
    st.tuples(GROUPS, st.just(Knob.CPU_QUOTA), st.sampled_from(["-1", "20000", "200000"])),
    st.tuples(GROUPS, st.just(Knob.MEMORY_LIMIT), st.sampled_from(["-1", str(2 << 30)])),
    st.tuples(st.just(BOUND_QUOTA[0]), st.just(Knob.CPU_QUOTA), st.sampled_from(["-1", "100000", "400000"])),
)
STEPS = st.tuples(st.sets(st.sampled_from(sorted(PODS))), st.lists(WRITES, max_size=2))


@given(st.lists(STEPS, max_size=12))
def test_after_any_changes_a_sample_equals_that_of_a_new_sampler(
    steps: list[tuple[set[str], list[tuple[str, Knob, str]]]],
) -> None:
    files = SimulatedFiles(CgroupVersion.V2, tuple(range(8)))
    sampler = SimulatedSampler(FACTS, 7, files)
    now = START
    held = sampler.sample(now, {}).pods
    for turned, writes in steps:
        fresh = SimulatedSampler(FACTS, 7, files)
        fresh.sample(now, {uid: PODS[uid] for uid in held})
        now += SECOND
        for group, knob, text in writes:
            files.write({group: {knob: text}}, ())
            for each in (sampler, fresh):
                each.written([group])
        pods = {uid: None if uid in held else PODS[uid] for uid in sorted(turned)}
        sample = sampler.sample(now, pods)
        assert sample == fresh.sample(now, pods)
        assert sampler.out_of_memory == fresh.out_of_memory
        assert sample.pods.keys() == (held.keys() ^ turned) - {end.uid for end in sampler.out_of_memory}
        held = sample.pods


def test_transitions_are_the_differences_since_the_last_call() -> None:
    runtime = SimulatedRuntime(SimulatedGroups(()))
    uid, pod = next(iter(PODS.items()))
    runtime.carry_out(Start(pod, "main", 0), START)
    assert runtime.poll(START)[uid] == {"main": ContainerState("main", 0, started_at=START)}
    assert runtime.transitions() == {uid: pod}
    assert runtime.transitions() == {}
    runtime.carry_out(Stop(uid, 0), START)
    runtime.carry_out(Start(pod, "main", 1), START)
    assert runtime.transitions() == {}
    runtime.run_out_of_memory(uid, START)
    assert runtime.transitions() == {}
    runtime.carry_out(Start(pod, "main", 2), START)
    assert runtime.transitions() == {uid: pod}
    runtime.carry_out(Stop(uid, 0), START)
    runtime.carry_out(Forget(uid), START)
    assert runtime.transitions() == {uid: None}


def test_changed_pods_are_those_whose_states_differ_since_the_last_call() -> None:
    runtime = SimulatedRuntime(SimulatedGroups(()))
    (first, pod), (second, other) = list(PODS.items())[:2]
    runtime.carry_out(Start(pod, "main", 0), START)
    runtime.carry_out(Start(other, "main", 0), START)
    assert runtime.changed() == {first, second}
    runtime.carry_out(Start(pod, "main", 0), START)
    runtime.poll(START)
    assert runtime.changed() == set()
    runtime.carry_out(Stop(first, 0), START)
    runtime.run_out_of_memory(second, START)
    assert runtime.changed() == {first, second}
    runtime.carry_out(Forget(first), START)
    assert runtime.changed() == {first}
    assert runtime.poll(START).keys() == {second}
