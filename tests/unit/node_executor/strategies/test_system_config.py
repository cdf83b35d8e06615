"""System settings: what is set, what is left alone, and that everything gets back what it held, on an imitated tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.strategies.strategy import StrategyDecision
from cotenant_node_executor.strategies.system_config import (
    FEATURES,
    GROUP_IDENTITY,
    IDLE_SAVER,
    MIN_FREE,
    PAGE_CACHE_LIMITS,
    REAPER,
    WATERMARK,
    SystemStrategy,
    decide,
    system_values,
)
from cotenant_node_executor.targets.address import (
    OomScore,
    OomScoreAttribute,
    Place,
    Sysctl,
    SysctlAttribute,
    SysFile,
    SysFileAttribute,
)
from cotenant_node_executor.targets.other.accessors import SysctlAccessor, SysFileAccessor
from cotenant_node_executor.targets.other.held import HeldValues
from cotenant_node_executor.targets.other.oom_scores import OomScoreAccessor
from cotenant_node_executor.targets.other.writer import OtherWriter
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import NODE, situation


def slo(**system: Any) -> NodeSLORendered:
    return NodeSLORendered(node=NODE, spec=encoded({"systemStrategy": system}))


def decided(**system: Any) -> StrategyDecision:
    return decide(situation(node_slo=slo(**system)), None)


@given(st.integers(-100, 10000), st.integers(0, 1 << 45))
def test_a_value_out_of_range_leaves_the_file_alone(factor: int, memory: int) -> None:
    text = system_values(SystemStrategy(min_free_kbytes_factor=factor), memory).get(MIN_FREE)
    wanted = memory // 1024 * factor // 10000
    assert text == (str(wanted) if 10240 <= wanted <= 10485760 else None)


def test_nothing_stated_sets_nothing() -> None:
    assert decided().values == {}
    assert decided(totalNetworkBandwidth="0").values == {}


@pytest.mark.parametrize(
    ("field", "place", "low", "high"),
    [
        ("watermark_scale_factor", WATERMARK, 10, 400),
        ("memcg_reap_back_ground", REAPER, 0, 1),
        ("sched_idle_saver_wmark", IDLE_SAVER, 0, 2**31 - 1),
        ("sched_group_identity_enabled", GROUP_IDENTITY, 0, 1),
        ("page_cache_limit_enabled", PAGE_CACHE_LIMITS, 0, 1),
    ],
)
def test_each_number_may_have_its_bounds(field: str, place: Place, low: int, high: int) -> None:
    for value, taken in ((low - 1, False), (low, True), (high, True), (high + 1, False)):
        stated: dict[str, Any] = {field: value}
        config = SystemStrategy(**stated)
        assert system_values(config, 1 << 34) == ({place: str(value)} if taken else {})
        assert system_values(config, 0) == {}


def test_features_are_words_and_all_else_is_a_value() -> None:
    found = decided(schedFeatures={"core_sched": True}, memcgReapBackGround=1, watermarkScaleFactor=10).values
    assert {place: each.attribute for place, (each,) in found.items()} == {
        FEATURES: SysFileAttribute.WORDS,
        REAPER: SysFileAttribute.VALUE,
        WATERMARK: SysctlAttribute.VALUE,
    }


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (True, "1"), (0, "0"), (False, "0")])
def test_page_cache_limits_of_the_machine_are_switched_by_a_number_or_a_truth_value(value: int | bool, text: str) -> None:
    found = decided(pageCacheLimitEnabled=value).values
    assert {place: each.value for place, (each,) in found.items()} == {SysFile("kernel/mm/pagecache_limit/enabled"): text}


@pytest.mark.parametrize("value", [9, 401])
def test_a_watermark_out_of_range_is_not_clamped(value: int) -> None:
    assert decided(watermarkScaleFactor=value).values == {}


def test_scheduler_features_are_words_of_one_file() -> None:
    (wanted,) = decided(schedFeatures={"ID_IDLE_AVG": False, "core_sched": True, "bad name": True}).values[FEATURES]
    assert wanted.value == "CORE_SCHED NO_ID_IDLE_AVG"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Folders like /proc/sys and /sys."""
    for name, text in {
        "proc/vm/min_free_kbytes": "67584",
        "proc/vm/watermark_scale_factor": "10",
        "sys/kernel/mm/memcg_reaper/reap_background": "0",
        "sys/kernel/debug/sched_features": "ID_IDLE_AVG NO_CORE_SCHED OTHER",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    return tmp_path


class Features(SysFileAccessor):
    """The kernel's list of features takes one word at a time and shows all."""

    def write(self, place: Any, attribute: Any, value: str) -> None:
        if place != FEATURES:
            super().write(place, attribute, value)
            return
        path = self._path(place)
        for word in value.split():
            plain = word.removeprefix("NO_")
            shown = [word if each.removeprefix("NO_") == plain else each for each in path.read_text().split()]
            path.write_text(" ".join(shown) + "\n")


def writer(tree: Path) -> OtherWriter:
    return OtherWriter({Sysctl: SysctlAccessor(tree / "proc"), SysFile: Features(tree / "sys")}, HeldValues(tree / "held.json"))


def wanted(**system: Any) -> dict[Any, Any]:
    found: dict[Place, Any] = dict(decided(**system).values)
    return {place: {each.attribute: each.value for each in own} for place, own in found.items()}


def texts(tree: Path) -> dict[str, str]:
    return {path.name: path.read_text().strip() for path in tree.rglob("*") if path.is_file() and path.name != "held.json"}


def test_what_is_no_longer_stated_gets_back_what_it_held_also_after_a_kill(tree: Path) -> None:
    before = texts(tree)
    asked = wanted(minFreeKbytesFactor=100, watermarkScaleFactor=150, memcgReapBackGround=1, schedFeatures={"CORE_SCHED": True})
    assert len(asked) == 4
    first = writer(tree)
    first.apply(asked)
    assert texts(tree)["watermark_scale_factor"] == "150"
    assert texts(tree)["sched_features"] == "ID_IDLE_AVG CORE_SCHED OTHER"
    first.apply(wanted(watermarkScaleFactor=200))
    assert texts(tree) == {**before, "watermark_scale_factor": "200"}
    # Killed here. The next executor restores what it finds stated no more.
    second = writer(tree)
    assert [each.new for each in second.apply({}).written] == ["10"]
    assert texts(tree) == before
    assert not second.holding


def test_a_file_that_this_kernel_lacks_is_skipped_and_not_restored(tree: Path) -> None:
    one = writer(tree)
    report = one.apply(wanted(schedIdleSaverWmark=5))
    assert (report.skipped, one.holding) == (1, False)


def test_an_unreadable_record_is_said_and_stops_nothing(tree: Path) -> None:
    (tree / "held.json").write_text("{")
    held = HeldValues(tree / "held.json")
    assert "not restored" in held.problem
    assert not held
    held.note(WATERMARK, next(iter(decided(watermarkScaleFactor=20).values[WATERMARK])).attribute, "10")
    assert HeldValues(tree / "held.json")


def test_oom_scores_are_written_for_each_process_that_differs_and_those_that_ended_are_passed_over(tmp_path: Path) -> None:
    for pid, score in ((7, "0"), (8, "500")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "oom_score_adj").write_text(score)
    place, attribute = OomScore("besteffort/a"), OomScoreAttribute.ADJUSTMENT
    one = OtherWriter({OomScore: OomScoreAccessor(lambda _group: [7, 8, 9], tmp_path)})
    (written,) = one.apply({place: {attribute: "100"}}).written
    assert (written.old, written.new) == ("0,500", "100")
    assert one.apply({place: {attribute: "100"}}).unchanged == 1
    assert one.apply({place: {attribute: "1001"}}).refused[0].message.startswith("oom_score_adj '1001'")
