"""Order of the writes of traffic classes: in a network namespace, on control groups of our own, by the kernel's HTB and BPF.

Packets of a class that does not exist are served with the node's own, before everybody's. So at every moment, whatever the
strategy wants next and wherever the executor is killed, each group's class exists; the next executor ends where the
killed one would have, or, where nothing is wanted any more, nothing is left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant_node_executor.strategies.network.bandwidth import Bandwidth, Network
from cotenant_node_executor.strategies.network.tc import tree
from cotenant_node_executor.targets.address import (
    Attribute,
    EgressAttribute,
    EgressClass,
    NonCgroup,
    TcTree,
    TcTreeAttribute,
    TerwayAttribute,
    TerwayFile,
)
from cotenant_node_executor.targets.cgroup.hierarchy import read_hierarchies
from cotenant_node_executor.targets.other.egress import EgressAccessor
from cotenant_node_executor.targets.other.held import HeldValues
from cotenant_node_executor.targets.other.terway import TerwayAccessor
from cotenant_node_executor.targets.other.traffic_tree import TrafficTreeAccessor
from cotenant_node_executor.targets.other.writer import OtherWriter
from tests.network_namespace import network_namespace

LO = TcTree("lo")
GROUPS = ("a", "b")
TOTALS = (8_000_000, 80_000_000)
LIMIT = 1_000_000
Values = dict[NonCgroup, dict[Attribute, str]]


class Killed(BaseException):
    """kill -9."""


class Deadline:
    """Kills at the given change, counted from 0; None: never."""

    def __init__(self) -> None:
        self.left: int | None = None

    def change(self) -> None:
        if self.left is not None:
            if self.left <= 0:
                raise Killed
            self.left -= 1


class CheckedTree(TrafficTreeAccessor):
    """A check after every command."""

    def __init__(self, within: tuple[str, ...], deadline: Deadline) -> None:
        super().__init__(within)
        self.deadline = deadline
        self.check: Callable[[], None] = lambda: None

    def changed(self, words: str) -> None:
        """Change the device as another program would."""
        super()._changed(*words.split())

    def _changed(self, *arguments: str) -> None:
        self.deadline.change()
        super()._changed(*arguments)
        self.check()


class CheckedEgress(EgressAccessor):
    """A check after every write."""

    def __init__(self, groups: Path, deadline: Deadline) -> None:
        super().__init__(lambda group: groups / group)
        self.deadline = deadline
        self.check: Callable[[], None] = lambda: None

    def write(self, place: NonCgroup, attribute: Attribute, value: str) -> None:
        self.deadline.change()
        super().write(place, attribute, value)
        self.check()


class Machine:
    """The device, and two groups with their egress."""

    def __init__(self, within: tuple[str, ...], groups: Path) -> None:
        self.deadline = Deadline()
        self.tree, self.egress = CheckedTree(within, self.deadline), CheckedEgress(groups, self.deadline)
        self.tree.check = self.egress.check = self.check

    def classes(self) -> list[str]:
        text = self.tree.read(LO, TcTreeAttribute.CLASSES) or ""
        return [each.split()[0] for each in text.split(";") if each]

    def classes_of_groups(self) -> dict[str, str]:
        return {group: self.egress.read(EgressClass(group), EgressAttribute.CLASS) or "" for group in GROUPS}

    def check(self) -> None:
        exist = self.classes()
        for group, found in self.classes_of_groups().items():
            assert not found or found in exist, f"{group} is in {found}, which is none of {exist}"

    def writer(self, held: Path) -> OtherWriter:
        """An executor's: it knows what was on the machine from its file alone."""
        return OtherWriter({TcTree: self.tree, EgressClass: self.egress}, HeldValues(held))


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    mount = read_hierarchies().v2
    if os.geteuid() != 0 or shutil.which("tc") is None or shutil.which("ip") is None or mount is None:
        pytest.skip("needs root, iproute2 and a cgroup v2 tree")
    groups = mount / f"cotenant-test-order-{os.getpid()}"
    for folder in (groups, *(groups / each for each in GROUPS)):
        folder.mkdir()
    try:
        with network_namespace("order") as within:
            yield Machine(within, groups)
    finally:
        for folder in (*(groups / each for each in GROUPS), groups):
            folder.rmdir()


def wanted(total: int, limited: dict[str, int | None]) -> Values:
    """As the strategy: both groups in a class, of their own (a minor number) or of the latency-sensitive."""
    own = {minor: (2, LIMIT) for minor in limited.values() if minor is not None}
    text = tree(Bandwidth(total=total, ls=Network()), own)
    values: Values = {
        EgressClass(group): {EgressAttribute.CLASS: f"1:{minor:x}" if minor is not None else "1:3"}
        for group, minor in limited.items()
    }
    return values | {LO: {TcTreeAttribute.CLASSES: text}}


STATES = st.one_of(
    st.none(),
    st.tuples(st.sampled_from(TOTALS), st.fixed_dictionaries({group: st.sampled_from([None, 16, 17]) for group in GROUPS})),
)
"""What the strategy wants; None: nothing, it is switched off."""


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(STATES, st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=4))
def test_a_groups_class_exists_at_every_moment_wherever_the_executor_is_killed(
    machine: Machine, steps: list[tuple[tuple[int, dict[str, int | None]] | None, int | None]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        held = Path(folder) / "initial-values.json"
        writer = machine.writer(held)
        for state, killed_at in steps:
            values = wanted(*state) if state is not None else {}
            machine.deadline.left = killed_at
            try:
                writer.apply(values)
            except Killed:
                machine.check()
                machine.deadline.left = None
                writer = machine.writer(held)
                writer.apply(values)
            machine.deadline.left = None
            assert writer.apply(values).written == (), "what is wanted is in force"
            if state is None:
                assert machine.classes() == []
                assert set(machine.classes_of_groups().values()) == {""}
            else:
                found = machine.classes_of_groups()
                assert found == {group: values[EgressClass(group)][EgressAttribute.CLASS] for group in GROUPS}
        writer.apply({})
        assert machine.classes() == []
        assert set(machine.classes_of_groups().values()) == {""}
        assert not writer.holding


def test_groups_are_in_no_class_of_a_discipline_of_somebody_else(machine: Machine, tmp_path: Path) -> None:
    machine.tree.changed("qdisc add dev lo root handle 1: pfifo limit 10")
    writer = machine.writer(tmp_path / "held.json")
    report = writer.apply(wanted(TOTALS[0], dict.fromkeys(GROUPS)))
    assert [each.place for each in report.refused] == [LO]
    assert set(machine.classes_of_groups().values()) == {""}
    machine.tree.changed("qdisc del dev lo root")
    assert writer.apply(wanted(TOTALS[0], dict.fromkeys(GROUPS))).refused == ()
    assert set(machine.classes_of_groups().values()) == {"1:3"}
    writer.apply({})
    assert machine.classes() == []


@pytest.mark.parametrize("call", ["write_text", "replace"])
def test_a_writer_of_terways_files_that_is_killed_leaves_whole_files_and_at_the_end_none(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, held = tmp_path / "qos", tmp_path / "held.json"
    values: Values = {
        TerwayFile("global_bps_config"): {TerwayAttribute.TEXT: "hw_tx_bps_max 1\n"},
        TerwayFile("pod.json"): {TerwayAttribute.TEXT: "{}"},
    }

    def writer() -> OtherWriter:
        return OtherWriter({TerwayFile: TerwayAccessor(folder)}, HeldValues(held))

    def killed(*_: object, **__: object) -> None:
        raise Killed

    writer().apply(values)
    changed: Values = {**values, TerwayFile("pod.json"): {TerwayAttribute.TEXT: '{"a":1}'}}
    with monkeypatch.context() as patch:
        patch.setattr(Path if call == "write_text" else os, call, killed)
        with pytest.raises(Killed):
            writer().apply(changed)
    assert (folder / "pod.json").read_text() == "{}", "the old file, whole"
    later = writer()
    later.apply({})
    assert [*folder.iterdir()] == []
    assert not later.holding
