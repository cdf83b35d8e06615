"""What kubelet's files held before: kept before the first write, put back afterwards, over any death of the executor."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant_node_executor.targets.cgroup.hierarchy import Hierarchies
from cotenant_node_executor.targets.interface import InvalidValueError, Knob
from cotenant_node_executor.targets.kubelet.binding import Bound
from cotenant_node_executor.targets.kubelet.driver import KubeletDriver
from cotenant_node_executor.targets.kubelet.held import COMPACT_LINES, HeldFiles

GROUP = "besteffort/podu"
DIRECTORY = "kubepods/besteffort/podu"
SHARES, QUOTA = Knob.CPU_SHARES, Knob.CPU_QUOTA


class Machine:
    """A folder that looks like cgroup v1, and drivers on it."""

    def __init__(self, folder: Path) -> None:
        self.mount = folder / "cpu"
        self.journal = folder / "held.journal"
        for group in ("", "kubepods", "kubepods/besteffort"):
            (self.mount / group).mkdir()
        self.make()

    def make(self, directory: str = DIRECTORY) -> None:
        (self.mount / directory).mkdir()
        (self.mount / directory / "cpu.shares").write_text("512\n")
        (self.mount / directory / "cpu.cfs_quota_us").write_text("-1\n")

    def driver(self) -> KubeletDriver:
        made = KubeletDriver(Hierarchies({"cpu": self.mount}, None, (), {}), "", HeldFiles(self.journal))
        made.take(Bound({"": "kubepods", "besteffort": "kubepods/besteffort", GROUP: DIRECTORY}))
        return made

    def shares(self) -> str:
        return (self.mount / DIRECTORY / "cpu.shares").read_text().strip()

    def put_shares(self, text: str) -> None:
        (self.mount / DIRECTORY / "cpu.shares").write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_file_gets_what_it_held_before_the_first_of_several_writes(machine: Machine) -> None:
    driver = machine.driver()
    for value in ("100", "200"):
        driver.write(GROUP, SHARES, value)
    assert driver.due([(GROUP, SHARES)]) == {}
    assert driver.due([]) == {(GROUP, SHARES): "512"}
    driver.write(GROUP, SHARES, "512")
    assert driver.due([]) == {}
    assert len(driver.held) == 0


def test_the_next_executor_restores_also_where_nobody_knows_the_group_any_more(machine: Machine) -> None:
    machine.driver().write(GROUP, SHARES, "100")
    heir = machine.driver()
    heir.take(Bound())
    assert heir.due([]) == {(f"@{DIRECTORY}", SHARES): "512"}
    heir.write(f"@{DIRECTORY}", SHARES, "512")
    assert machine.shares() == "512"
    assert heir.due([]) == {}
    assert machine.driver().due([]) == {}


def test_a_kill_between_the_journal_and_the_file_loses_nothing(machine: Machine) -> None:
    driver = machine.driver()
    driver.write(GROUP, SHARES, "100")
    inode = (machine.mount / DIRECTORY).stat().st_ino
    driver.held.note(DIRECTORY, inode, SHARES, "100", "200", own=True)  # killed here: the file still says 100
    heir = machine.driver()
    assert heir.due([]) == {(GROUP, SHARES): "512"}
    heir.write(GROUP, SHARES, "300")
    assert machine.driver().due([]) == {(GROUP, SHARES): "512"}


def test_a_line_that_was_cut_off_counts_as_absent(machine: Machine) -> None:
    machine.driver().write(GROUP, SHARES, "100")
    with machine.journal.open("ab") as file:
        file.write(b'{"directory":"kubepods","kno')
    assert machine.driver().due([]) == {(GROUP, SHARES): "512"}
    machine.journal.write_bytes(b'\xff\n[]\n{"directory":"a","knob":"no.such","initial":"1"}\n')
    assert machine.driver().due([]) == {}


def test_what_kubelet_writes_afterwards_is_what_stays(machine: Machine) -> None:
    driver = machine.driver()
    driver.write(GROUP, SHARES, "100")
    machine.put_shares("700")  # the pod was resized
    driver.write(GROUP, SHARES, "100")
    assert driver.due([]) == {(GROUP, SHARES): "700"}
    machine.put_shares("999")
    assert driver.due([]) == {}
    assert machine.shares() == "999"


def test_a_group_that_was_made_again_has_nothing_to_restore(machine: Machine) -> None:
    driver = machine.driver()
    driver.write(GROUP, SHARES, "100")
    folder = machine.mount / DIRECTORY
    folder.rename(machine.mount / "kept")  # so that its inode is not used again
    machine.make()
    machine.put_shares("100")
    assert driver.due([]) == {}
    assert machine.shares() == "100"


def test_a_refused_write_does_not_become_the_initial_value(machine: Machine) -> None:
    driver = machine.driver()
    driver.write(GROUP, QUOTA, "5000")
    file = machine.mount / DIRECTORY / "cpu.cfs_quota_us"
    file.chmod(0o400)
    inode = (machine.mount / DIRECTORY).stat().st_ino
    driver.held.note(DIRECTORY, inode, QUOTA, "5000", "9000", own=True)  # what a refused write leaves
    file.chmod(0o600)
    driver.write(GROUP, QUOTA, "7000")
    assert driver.due([]) == {(GROUP, QUOTA): "-1"}


def test_nothing_is_made_removed_killed_or_written_outside_of_known_groups(machine: Machine) -> None:
    driver = machine.driver()
    driver.create("burstable/podx")
    driver.remove(GROUP)
    assert driver.kill(GROUP) == []
    assert (machine.mount / DIRECTORY).is_dir()
    assert not (machine.mount / "burstable").exists()
    for group in ("burstable/podx", "podx", "../escape"):
        with pytest.raises(FileNotFoundError):
            driver.write(group, SHARES, "100")
    with pytest.raises(InvalidValueError):
        driver.write(GROUP, SHARES, "-5")
    assert len(driver.held) == 0
    assert machine.shares() == "512"


def test_the_journal_stays_bounded(machine: Machine) -> None:
    held = HeldFiles(machine.journal)
    for number in range(COMPACT_LINES + 10):
        held.note("kubepods", 1, SHARES, "2", str(number + 2), own=number > 0)
    assert len(machine.journal.read_bytes().splitlines()) < 20
    assert HeldFiles(machine.journal).of("kubepods", SHARES) == held.of("kubepods", SHARES)
