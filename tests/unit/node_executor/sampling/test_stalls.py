"""Whether services wait for CPU, by readings of their pressure files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant_node_executor.sampling.pressure.stalls import MOST_FILES, Stalls

MS = 1_000_000


class Pressure:
    """A pressure file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.total(1_000_000)

    def total(self, stalled_us: int) -> None:
        line = f"avg10=0.00 avg60=0.00 avg300=0.00 total={stalled_us}"
        self.path.write_text(f"some {line}\nfull {line.replace(str(stalled_us), '7')}\n")


@pytest.fixture
def files(tmp_path: Path) -> list[Pressure]:
    return [Pressure(tmp_path / f"cpu.pressure-{number}") for number in range(MOST_FILES + 1)]


def watching(*files: Pressure) -> Stalls:
    made = Stalls(5_000, 500 * MS)
    made.watch([str(each.path) for each in files])
    return made


def test_enough_waiting_within_the_window_is_found_and_the_first_reading_tells_nothing(files: list[Pressure]) -> None:
    web, api, *_ = files
    stalls = watching(web, api)
    assert not stalls.found(0)
    api.total(1_004_999)
    assert not stalls.found(25 * MS)
    api.total(1_005_000)
    assert stalls.found(50 * MS)
    assert stalls.found(500 * MS)
    assert not stalls.found(560 * MS), "what was waited before the window does not count"
    stalls.watch(())


def test_waiting_that_is_slow_is_none(files: list[Pressure]) -> None:
    stalls = watching(files[0])
    for look in range(100):
        files[0].total(1_000_000 + look * 200)
        assert not stalls.found(look * 25 * MS)
    stalls.watch(())


def test_a_file_that_is_not_there_or_holds_something_else_is_left_out(files: list[Pressure], tmp_path: Path) -> None:
    web, odd, *_ = files
    stalls = watching(Pressure(tmp_path / "gone"), web, odd)
    stalls.watch([str(tmp_path / "nowhere"), str(web.path), str(odd.path)])
    odd.path.write_text("rubbish\n")
    assert not stalls.found(0)
    web.total(2_000_000)
    assert stalls.found(25 * MS)
    stalls.watch(())


def test_more_files_than_the_bound_are_left_to_the_triggers(files: list[Pressure]) -> None:
    stalls = watching(*files)
    assert not stalls.found(0)
    files[-1].total(2_000_000)
    assert not stalls.found(25 * MS)
    files[0].total(2_000_000)
    assert stalls.found(50 * MS)
    stalls.watch(())
