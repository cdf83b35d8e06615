"""The newest event of a quota's pods, kept as a running maximum: the same as a search through all of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.events.node.runs import RunPhase
from tests.unit.quota_tree.builders_quota_tree import QuotaLog

QUOTAS = ("a", "b")
PODS = ("p1", "p2", "p3")
STEPS = st.tuples(
    st.sampled_from(("pod", "big", "delete", "place", "unplace", "running", "ended", "other uid", "ask", "ask")),
    st.sampled_from(PODS),
    st.sampled_from(QUOTAS),
)


def take(log: QuotaLog, step: str, pod: str, quota: str) -> None:
    match step:
        case "pod":
            log.pod(pod, quota=quota, cpu="1")
        case "big":
            log.pod(pod, quota=quota, cpu="2")
        case "delete":
            log.delete_pod(pod)
        case "place":
            log.place(pod)
        case "unplace":
            log.unplace(pod)
        case "running":
            log.run(pod, RunPhase.RUNNING)
        case "ended":
            log.run(pod, RunPhase.SUCCEEDED)
        case "other uid":
            log.place(pod, "n2", uid="another")


def searched(log: QuotaLog, quota: str) -> int:
    pods = log.core.pods
    found = [0]
    for key, _, _ in pods.counted(quota):
        known = pods._pods[key]
        assert known.facts is not None
        found.append(known.facts.sequence)
        found += [fact.sequence for fact in known.on_nodes.values() if fact.uid == known.facts.uid]
    return max(found)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_the_newest_event_of_a_quotas_pods_is_what_a_search_finds(steps: list[tuple[str, str, str]]) -> None:
    log = QuotaLog()
    log.node("n1", cpu="10")
    for quota in QUOTAS:
        log.quota(quota, maximum={"cpu": "10"})
    log.decide()
    for step, pod, quota in (*steps, *(("ask", "", quota) for quota in QUOTAS)):
        if step == "ask":
            assert log.core.pods.newest(quota) == searched(log, quota)
        else:
            take(log, step, pod, quota)
