"""What the kernel keeps for fair tasks: fair servers, the release, the sysctl of before."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant_node_executor.runtime.realtime.reserve import kept_for_others


def sysctls(folder: Path, runtime: int) -> Path:
    (folder / "sched_rt_runtime_us").write_text(f"{runtime}\n")
    (folder / "sched_rt_period_us").write_text("1000000\n")
    return folder


@pytest.mark.parametrize(
    ("release", "runtime", "kept"),
    [
        ("6.1.0-18-amd64", 950_000, 0.05),
        ("6.1.0", -1, 0.0),
        ("6.1.0", 1_000_000, 0.0),
        ("6.12.117", -1, 0.05),
        ("7.0", -1, 0.05),
    ],
)
def test_the_sysctl_counts_before_6_12_and_a_fair_server_since(tmp_path: Path, release: str, runtime: int, kept: float) -> None:
    assert kept_for_others(release, tmp_path / "none", sysctls(tmp_path, runtime)) == pytest.approx(kept)


def test_the_smallest_fair_server_of_any_cpu_counts(tmp_path: Path) -> None:
    for cpu, runtime in (("cpu0", 50_000_000), ("cpu1", 0)):
        (tmp_path / cpu).mkdir()
        (tmp_path / cpu / "runtime").write_text(str(runtime))
        (tmp_path / cpu / "period").write_text("1000000000")
    assert kept_for_others("6.12.0", tmp_path) == 0.0
    (tmp_path / "cpu1" / "runtime").write_text("60000000")
    assert kept_for_others("6.12.0", tmp_path) == pytest.approx(0.05)


def test_unreadable_figures_keep_nothing(tmp_path: Path) -> None:
    assert kept_for_others("5.10", tmp_path / "none", tmp_path) == 0.0
