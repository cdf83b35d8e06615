"""Core scheduling: groups of pods, cookies of processes, and a kernel that has none."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.core.composer import Composer
from cotenant_node_executor.strategies.cpu.core_sched.rule import in_force, pod_group
from cotenant_node_executor.strategies.cpu.core_sched.strategy import IDENTITY_SWITCH, STRATEGY, SWITCH, decide
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import NodePolicy, StrategyDecision
from cotenant_node_executor.targets.address import Attribute, NonCgroup, ProcessAttribute, Processes, SysctlAttribute
from cotenant_node_executor.targets.interface import (
    NO_CORE_GROUPS,
    CookieOutcome,
    HeldCookie,
    Knob,
    KnobSupport,
    NodeCapabilities,
)
from cotenant_node_executor.targets.other.cookies import add_cookie, assign_cookie, clear_cookie, read_cookie
from cotenant_node_executor.targets.other.core_groups import (
    CHECKED_FOR_NS,
    FORGOTTEN_AFTER_NS,
    MOST_COUNTED,
    CoreGroupAccessor,
)
from cotenant_node_executor.targets.other.threads import SchedulingCalls
from cotenant_node_executor.targets.other.writer import OtherWriter
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import batch, capabilities, pod, service, situation, slo

GROUP = ProcessAttribute.CORE_GROUP
WEB, API, JOB = "burstable/poduid-web/main", "burstable/poduid-api/main", "besteffort/poduid-job/main"


class Kernel:
    """The calls of a kernel with core scheduling, on a table; processes that are missing have ended."""

    def __init__(self, *pids: int) -> None:
        self.cookies = dict.fromkeys(pids, 0)
        self.calls = 0
        self.supported = True

    def _there(self, pid: int) -> None:
        self.calls += 1
        if not self.supported:
            raise OSError(errno.EINVAL, "Invalid argument")
        if pid not in self.cookies:
            raise ProcessLookupError(errno.ESRCH, "No such process")

    def cookie_of(self, pid: int) -> int:
        self._there(pid)
        return self.cookies[pid]

    def new_process_cookie(self, pid: int) -> None:
        self._there(pid)
        self.cookies[pid] = max(self.cookies.values()) + 1000

    def share_process_cookie(self, source: int, pid: int) -> None:
        self._there(pid)
        self.cookies[pid] = self.cookies[source] if source else 0


def core_kernel() -> NodeCapabilities:
    found = capabilities()
    return replace(found, knobs={**found.knobs, "core_sched": KnobSupport(True)})


def core_slo(policy: str = "coreSched", **classes: dict[str, Any]) -> NodeSLORendered:
    section = {"policies": {"cpuPolicy": policy}, **{name: {"cpuQOS": qos} for name, qos in classes.items()}}
    return slo(spec=encoded({"resourceQOSStrategy": section}))


ON = core_slo(lsClass={"enable": True}, beClass={"enable": True})


def seen(
    node_slo: NodeSLORendered, labels: Mapping[str, dict[str, str]] | None = None, *, kernel: NodeCapabilities | None = None
) -> Situation:
    pods = []
    for entry in (service("web"), service("api"), batch("job"), pod("sys", "SYSTEM", requests={"cpu": "1"})):
        own = (labels or {}).get(entry.metadata.name, {})
        pods.append(replace(entry, metadata=replace(entry.metadata, labels={**entry.metadata.labels, **own})))
    return situation(pods, node_slo=node_slo, kernel=kernel or core_kernel())


def groups(decision: StrategyDecision) -> dict[str, str]:
    return {place.group: own[0].value for place, own in decision.values.items() if isinstance(place, Processes)}


def test_pods_of_a_class_share_a_group_and_the_kernels_switches_are_set() -> None:
    found = decide(seen(ON), None)
    assert groups(found) == {WEB: "-expeller", API: "-expeller", JOB: "default"}
    assert found.values[IDENTITY_SWITCH][0].value == "0"
    assert found.values[SWITCH][0].value == "1"


def test_a_label_names_a_group_of_its_own_or_keeps_a_pod_out_of_any() -> None:
    labels = {
        "web": {"koordinator.sh/core-sched-group-id": "shop"},
        "api": {"koordinator.sh/core-sched-policy": "exclusive"},
        "job": {"koordinator.sh/core-sched-policy": "none"},
    }
    assert groups(decide(seen(ON, labels), None)) == {WEB: "shop-expeller", API: "uid-api-expeller"}


def test_containers_leave_their_group_when_the_rule_goes_and_others_are_not_touched() -> None:
    first = decide(seen(ON), None)
    off = decide(seen(core_slo(lsClass={"enable": True}, beClass={"enable": False})), first.memory)
    assert groups(off) == {WEB: "-expeller", API: "-expeller", JOB: ""}
    gone = decide(seen(slo()), off.memory)
    assert groups(gone) == {WEB: "", API: "", JOB: ""}
    assert SWITCH not in gone.values
    assert groups(decide(seen(slo()), None)) == {}


@pytest.mark.parametrize("value", [5, [], {}, "yes"])
def test_an_unreadable_section_switches_it_off(value: object) -> None:
    broken = core_slo(lsClass={"enable": True, "coreExpeller": value}, beClass={"enable": True})
    first = decide(seen(ON), None)
    for before, left in ((None, {}), (first.memory, {WEB: "", API: "", JOB: ""})):
        found = decide(seen(broken), before)
        assert groups(found) == left


def test_a_kernel_without_core_scheduling_is_left_alone() -> None:
    assert decide(seen(ON, kernel=capabilities()), None) == StrategyDecision()
    assert STRATEGY.inputs(NodePolicy(capabilities(), ON)) == frozenset()


def test_a_class_with_sched_idle_makes_its_directory_idle_and_a_disabled_one_is_neutral() -> None:
    found = decide(seen(core_slo(beClass={"enable": True, "schedIdle": 1})), None)
    assert [(each.attribute, each.value) for each in found.values["besteffort"]] == [(Knob.CPU_IDLE, "1")]
    rule = in_force(core_slo(lsClass={"enable": False, "schedIdle": 1, "coreExpeller": True}))
    assert rule.pod_qos["LS"].idle is rule.pod_qos["LS"].expeller is False
    assert in_force(core_slo("groupIdentity", lsClass={"enable": True})).enable is False
    assert pod_group(rule, {}, "Burstable", "u") == (False, "")


def test_its_values_are_composed_as_of_any_other_place() -> None:
    composer = Composer()
    composer.put("node:core-sched", decide(seen(ON), None).values)
    assert composer.composed().others[Processes(WEB)] == {GROUP: "-expeller"}
    assert composer.composed().others[SWITCH] == {SysctlAttribute.VALUE: "1"}


class Machine:
    """A writer of core groups on an imitated kernel with processes in control groups, and a clock."""

    def __init__(self, processes: dict[str, list[int]]) -> None:
        self.processes = processes
        self.kernel = Kernel(*[pid for pids in processes.values() for pid in pids])
        self.now = 0
        self.restart()

    def restart(self) -> None:
        self.groups = CoreGroupAccessor(
            self.kernel, lambda group: self.processes.get(group, []), clock_ns=lambda: self.now
        )
        self.writer = OtherWriter({Processes: self.groups})

    def fork(self, group: str, pid: int, parent: int | None = None) -> None:
        self.processes[group].append(pid)
        self.kernel.cookies[pid] = 0 if parent is None else self.kernel.cookies[parent]

    def apply(self, wanted: dict[str, str]) -> tuple[int, int]:
        values: dict[NonCgroup, Mapping[Attribute, str]] = {Processes(group): {GROUP: name} for group, name in wanted.items()}
        report = self.writer.apply(values)
        return len(report.written), len(report.refused)

    def cookies(self, group: str) -> set[int]:
        return {self.kernel.cookies[pid] for pid in self.processes[group]}


def test_containers_of_one_group_share_a_cookie_and_other_groups_have_another() -> None:
    machine = Machine({WEB: [10, 11], API: [20], JOB: [30, 31, 32]})
    wanted = {WEB: "ls", API: "ls", JOB: "be"}
    assert machine.apply(wanted) == (3, 0)
    assert machine.cookies(WEB) == machine.cookies(API)
    assert len(machine.cookies(WEB)) == len(machine.cookies(JOB)) == 1
    assert machine.cookies(WEB) != machine.cookies(JOB)
    assert 0 not in machine.cookies(WEB) | machine.cookies(JOB)
    assert machine.apply(wanted) == (0, 0)


def test_forked_processes_inherit_the_cookie_and_strays_are_found_at_the_next_look() -> None:
    machine = Machine({WEB: [10]})
    machine.apply({WEB: "ls"})
    machine.fork(WEB, 11, parent=10)
    machine.fork(WEB, 12)
    before = machine.kernel.calls
    assert machine.apply({WEB: "ls"}) == (0, 0)
    assert machine.kernel.calls == before
    machine.now += CHECKED_FOR_NS
    assert machine.apply({WEB: "ls"}) == (1, 0)
    assert machine.cookies(WEB) == {machine.kernel.cookies[10]}


def test_after_a_restart_cookies_are_taken_over() -> None:
    machine = Machine({WEB: [10], API: [20], JOB: [30]})
    wanted = {WEB: "ls", API: "ls", JOB: "be"}
    machine.apply(wanted)
    before = dict(machine.kernel.cookies)
    machine.restart()
    machine.fork(API, 21)
    machine.apply(wanted)
    assert {pid: machine.kernel.cookies[pid] for pid in before} == before
    assert machine.cookies(API) == machine.cookies(WEB)


def test_a_group_lives_on_in_any_of_its_processes_and_begins_anew_without_one() -> None:
    machine = Machine({WEB: [10], API: [20]})
    machine.apply({WEB: "ls", API: "ls"})
    del machine.kernel.cookies[10]
    machine.processes[WEB] = []
    machine.fork(WEB, 12)
    machine.now += CHECKED_FOR_NS
    machine.apply({WEB: "ls", API: "ls"})
    assert machine.cookies(WEB) == machine.cookies(API)
    machine.processes[WEB], machine.processes[API] = [], []
    machine.kernel.cookies.clear()
    machine.fork(WEB, 13)
    machine.now += FORGOTTEN_AFTER_NS
    assert machine.apply({WEB: "ls", API: "ls"}) == (1, 0)
    assert machine.cookies(WEB) != {0}


def test_a_container_that_is_put_out_of_its_group_has_no_cookie() -> None:
    machine = Machine({WEB: [10, 11], API: [20]})
    machine.apply({WEB: "ls", API: "ls"})
    assert machine.apply({WEB: "", API: "ls"}) == (1, 0)
    assert machine.cookies(WEB) == {0}
    assert machine.cookies(API) != {0}


def test_cookies_and_outcomes_are_shown_and_stay_the_same_object_while_nothing_changes() -> None:
    machine = Machine({WEB: [10, 11], JOB: [30]})
    assert machine.groups.shown is NO_CORE_GROUPS
    machine.apply({WEB: "ls", JOB: "be"})
    shown = machine.groups.shown
    assert shown.cookies == {
        WEB: HeldCookie("ls", machine.kernel.cookies[10]),
        JOB: HeldCookie("be", machine.kernel.cookies[30]),
    }
    assert shown.outcomes == {"ls": CookieOutcome(1), "be": CookieOutcome(1)}
    machine.apply({WEB: "ls", JOB: "be"})
    assert machine.groups.shown is shown
    machine.apply({WEB: "", JOB: "be"})
    assert list(machine.groups.shown.cookies) == [JOB]
    machine.kernel.supported = False
    machine.now += CHECKED_FOR_NS
    machine.apply({WEB: "ls", JOB: "be"})
    assert machine.groups.shown.outcomes["ls"].failed == 1
    machine.kernel.supported = True
    for number in range(MOST_COUNTED):
        machine.apply({WEB: f"group-{number}"})
    assert len(machine.groups.shown.outcomes) == MOST_COUNTED
    assert "ls" not in machine.groups.shown.outcomes


def test_a_kernels_refusal_is_reported_once_and_tried_again() -> None:
    machine = Machine({WEB: [10]})
    machine.kernel.supported = False
    assert machine.apply({WEB: "ls"}) == (0, 1)
    assert machine.apply({WEB: "ls"}) == (0, 0)
    machine.kernel.supported = True
    assert machine.apply({WEB: "ls"}) == (1, 0)


def test_this_machines_own_kernel_answers_or_refuses_without_harm() -> None:


    writer = OtherWriter({Processes: CoreGroupAccessor(SchedulingCalls(), lambda _: [os.getpid()])})
    values: dict[NonCgroup, Mapping[Attribute, str]] = {Processes(WEB): {GROUP: ""}}
    report = writer.apply(values)
    assert report.written == ()


PIDS = st.lists(st.integers(1, 12), unique=True, max_size=8)


@given(st.dictionaries(st.integers(1, 12), st.sampled_from([0, 5, 7])), PIDS, PIDS)
def test_what_is_said_of_cookies_is_so(cookies: dict[int, int], pids: list[int], siblings: list[int]) -> None:
    kernel = Kernel()
    kernel.cookies = dict(cookies)
    target, carrying = read_cookie(kernel, siblings)
    assert all(kernel.cookies[pid] == target for pid in carrying)
    if target:
        assigned, stale, failed = assign_cookie(kernel, pids, siblings, target)
        assert not failed
        assert {*assigned} == {pid for pid in pids if pid in cookies}
        assert all(cookies.get(pid) != target for pid in stale)
        assert all(kernel.cookies[pid] == target for pid in assigned)
    cleared = clear_cookie(kernel, pids)
    assert [*cleared] == sorted(pid for pid in pids if pid in cookies)
    assert all(kernel.cookies[pid] == 0 for pid in cleared)
    if cleared:
        new, added = add_cookie(kernel, cleared)
        assert new not in {0, target}
        assert added == cleared
