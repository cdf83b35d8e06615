"""Facilities outside of cgroups are probed where the kernel exposes them."""

from __future__ import annotations

from pathlib import Path

from cotenant_node_executor.targets.cgroup.knobs import probe
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def machine(tmp_path: Path, *files: str) -> tuple[Path, Path]:
    for file in files:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PRESSURE)
    return tmp_path / "proc", tmp_path / "sys"


def facilities(tmp_path: Path, *files: str) -> dict[str, str]:
    proc, sys = machine(tmp_path, *files)
    found = probe(SandboxDriver(tmp_path / "tree", "node-1"), proc=proc, sys=sys)
    return {name: support.why for name, support in found.knobs.items() if not name.startswith(("cpu", "mem", "blk", "io"))}


def test_present_knobs_are_supported(tmp_path: Path) -> None:
    found = facilities(
        tmp_path,
        "proc/pressure/cpu",
        "proc/sys/kernel/sched_core",
        "proc/sys/kernel/sched_group_identity_enabled",
        "sys/fs/resctrl/schemata",
        "sys/kernel/mm/page_idle/bitmap",
        "sys/kernel/mm/kidled/scan_period_in_seconds",
    )
    for name in ("psi.node", "core_sched", "group_identity", "resctrl", "page_idle", "kidled"):
        assert found[name] == "", name


def test_a_missing_knob_is_reported_with_its_reason(tmp_path: Path) -> None:
    found = facilities(tmp_path, "sys/fs/resctrl/.keep")
    assert found["resctrl"] == "/sys/fs/resctrl is not mounted"
    assert "/proc/pressure" in found["psi.node"]
    assert "Anolis" in found["kidled"]
    assert found["psi.group"] == "no file for the pressure of a group"
