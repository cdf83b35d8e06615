"""When LOG is full, what that says, and how much history it keeps then."""

from __future__ import annotations

import pytest

from cotenant.log.contract import LogSpace
from cotenant.log.room_pause import RoomPause
from cotenant_gateway.loop.room import StorageSpace

MIB = 1 << 20


def room(used: int, limit: int = 100 * MIB, *, versions: int = 64, disk_free: int | None = None) -> StorageSpace:
    return StorageSpace(LogSpace(used, limit, versions), disk_free, "/data/jetstream")


@pytest.mark.parametrize(
    ("used", "disk_free", "is_short"),
    [
        (89 * MIB, None, False),
        (90 * MIB, None, True),
        (110 * MIB, None, True),
        (1 * MIB, 11 * MIB, False),
        (1 * MIB, 10 * MIB, True),
        (1 * MIB, 0, True),
    ],
)
def test_the_last_tenth_of_the_bound_or_of_the_disk_is_the_reserve(used: int, disk_free: int | None, is_short: bool) -> None:
    assert room(used, disk_free=disk_free).is_short is is_short


def test_a_log_without_a_bound_is_short_where_the_disk_is() -> None:
    assert not room(1 << 40, 0).is_short
    assert room(1, 0, disk_free=4 * MIB).is_short
    assert not room(1, 0, disk_free=5 * MIB).is_short


GIB = 1 << 30


@pytest.mark.parametrize(
    ("space", "enforced"),
    [
        pytest.param(LogSpace(GIB, 4 * GIB, enforced=True), False, id="a quarter full"),
        pytest.param(LogSpace(GIB + 1, 4 * GIB, enforced=True), True, id="more than a quarter full: as it is"),
        pytest.param(LogSpace(2 * GIB, 4 * GIB, enforced=False), False, id="half full: as it is"),
        pytest.param(LogSpace(2 * GIB + 1, 4 * GIB, enforced=False), True, id="more than half full"),
        pytest.param(LogSpace(0, GIB, enforced=True), False, id="a bound of 1 GiB"),
        pytest.param(LogSpace(0, GIB - 1, enforced=False), True, id="a smaller bound"),
        pytest.param(LogSpace(0, 4 * GIB, extended=1, enforced=True), True, id="extended"),
    ],
)
def test_the_bound_is_enforced_from_half_of_it_on_and_below_a_quarter_no_more(space: LogSpace, enforced: bool) -> None:
    assert StorageSpace(space).is_enforced() is enforced


def test_the_bound_is_enforced_where_the_disk_is_short() -> None:
    assert StorageSpace(LogSpace(0, 4 * GIB, enforced=False), 4 * GIB // 10).is_enforced()
    assert not StorageSpace(LogSpace(0, 4 * GIB, enforced=False), 4 * GIB // 10 + 1).is_enforced()


def test_what_is_said_names_the_place_the_figures_and_the_cure() -> None:
    assert str(room(MIB)) == ""
    full = str(room(93 * MIB + MIB // 2))
    assert full.startswith("LOG is full: it takes 93.5 MiB of 100.0 MiB, a tenth of which is the reserve; ")
    assert "Delete unused objects" in full
    assert "`cotenant admin streams`" in full
    disk = str(room(MIB, disk_free=9 * MIB))
    assert disk.startswith("the disk of nats-server (/data/jetstream) is full: 9.0 MiB are free, the reserve is 10.0 MiB; ")
    assert "creations and updates, but no deletions, are refused. Remove files from that disk" in disk
    assert "all writes are refused" in str(room(MIB, disk_free=MIB - 1))


@pytest.mark.parametrize(
    ("used", "kept", "wanted"),
    [
        (89 * MIB, 64, 64),
        (90 * MIB, 64, 48),
        (90 * MIB, 48, 36),
        (90 * MIB, 5, 4),
        (90 * MIB, 4, 4),
        (90 * MIB, 2, 2),
        (95 * MIB, 4, 3),
        (95 * MIB, 2, 1),
        (95 * MIB, 1, 1),
        (89 * MIB, 4, 4),
        (51 * MIB, 4, 4),
        (50 * MIB, 4, 64),
    ],
)
def test_history_goes_step_by_step_and_comes_back_at_half(used: int, kept: int, wanted: int) -> None:
    assert room(used, versions=kept).versions() == wanted


def test_a_full_disk_takes_no_history_from_log() -> None:
    assert room(MIB, disk_free=0).versions() == 64


def test_the_pause_doubles_to_its_bound_and_ends_with_the_first_write_that_is_stored() -> None:
    pause = RoomPause()
    assert not pause.waits(100.0)
    assert [pause.refused(100.0) for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert pause.waits(109.9)
    assert not pause.waits(110.0)
    assert pause.stored()
    assert not pause.stored()
    assert pause.refused(200.0) == 1.0
