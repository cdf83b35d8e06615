"""Probes the kernel's capabilities once: every knob is read, and written with its present value, in a scratch group.

A file's presence is not enough (a file may refuse every write), and a version number does not describe a vendor's kernel.
Facilities outside of cgroups (pressure, resctrl, core scheduling ...) are probed where the kernel exposes them. A missing
feature is reported with its reason and never raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cotenant_node_executor.targets.cgroup.files import BY_DEVICE, KNOB_FILES, PRESSURE_STATS
from cotenant_node_executor.targets.cgroup.reclaim import reclaim_file
from cotenant_node_executor.targets.cgroup.tree import read_file
from cotenant_node_executor.targets.interface import (
    LARGE_BURSTS,
    RECLAIM,
    SLICES,
    THREADS,
    CgroupDriver,
    CgroupVersion,
    Knob,
    KnobSupport,
    NodeCapabilities,
    Stat,
)
from cotenant_node_executor.targets.psi import parse_pressure

SCRATCH = "probe"
_SUPPORTED = KnobSupport(True)
_READ_ONLY_PROBE = BY_DEVICE  # a line per device, or a default that may be changed only where its scheduler runs
PR_SCHED_CORE, PR_SCHED_CORE_GET = 62, 0
PROBED_QUOTA_US = 10_000


def probe(driver: CgroupDriver, *, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> NodeCapabilities:
    """Create the scratch group, probe every knob, remove the group. Raises OSError only if no group can be created at all."""
    driver.create(SCRATCH)
    try:
        knobs = {knob.value: _probe_knob(driver, knob) for knob in Knob}
        knobs[LARGE_BURSTS] = _probe_large_bursts(driver)
        knobs["psi.group"] = _probe_group_pressure(driver)
        knobs["cgroup.kill"] = _probe_kill(driver)
        knobs[RECLAIM] = _probe_reclaim(driver)
    finally:
        driver.remove(SCRATCH)
    knobs |= {name: look(proc, sys) for name, look in _FACILITIES.items()}
    if driver.sandbox:
        knobs |= dict.fromkeys((THREADS, SLICES), _unsupported("threads of an imitated tree are left alone"))
    return NodeCapabilities(
        version=driver.version,
        controllers=driver.controllers,
        sandbox=driver.sandbox,
        root=driver.root_group,
        knobs=knobs,
        kernel=os.uname().release,
        why_sandbox=driver.why_sandbox,
    )


def _unsupported(why: str) -> KnobSupport:
    return KnobSupport(False, why)


def _probe_knob(driver: CgroupDriver, knob: Knob) -> KnobSupport:
    entry = KNOB_FILES[knob]
    path = driver.path(SCRATCH, knob)
    if path is None:
        if entry.file(driver.version) is None:
            return _unsupported(f"cgroup {driver.version.value} has no such file")
        return _unsupported(f"the {entry.controller} controller is not mounted")
    if not path.exists():
        if entry.controller not in driver.controllers:
            answer = driver.refused_controllers.get(entry.controller, "the group above does not offer it")
            return _unsupported(f"the {entry.controller} controller is not available in {driver.root_group}: {answer}")
        return _unsupported(f"this kernel has no {path.name}")
    try:
        present = driver.read(SCRATCH, knob)
        if present is not None and knob not in _READ_ONLY_PROBE:
            driver.write(SCRATCH, knob, present)
    except (OSError, ValueError) as error:
        return _unsupported(f"{path.name}: {error}")
    return _SUPPORTED


def _probe_large_bursts(driver: CgroupDriver) -> KnobSupport:
    """Mainline kernels refuse a burst above the quota."""
    try:
        driver.write(SCRATCH, Knob.CPU_QUOTA, str(PROBED_QUOTA_US))
        driver.write(SCRATCH, Knob.CPU_BURST, str(2 * PROBED_QUOTA_US))
        large = driver.read(SCRATCH, Knob.CPU_BURST) == str(2 * PROBED_QUOTA_US)
    except (OSError, ValueError) as error:
        return _unsupported(f"a burst above the quota: {error}")
    return _SUPPORTED if large else _unsupported("this kernel has no burst")


def _probe_group_pressure(driver: CgroupDriver) -> KnobSupport:
    for stat in PRESSURE_STATS:
        path = driver.stat_path(SCRATCH, stat)
        if path is None:
            return _unsupported("no file for the pressure of a group")
        try:
            content = read_file(path)
            if content is None:
                return _unsupported(f"this kernel has no {path.name} in a group")
            parse_pressure(content)
        except (OSError, ValueError) as error:
            return _unsupported(f"{path.name}: {error}")
    return _SUPPORTED


def _probe_kill(driver: CgroupDriver) -> KnobSupport:
    path = driver.stat_path(SCRATCH, Stat.CPU_PRESSURE)  # in the v2 tree, on hybrid machines too
    if driver.version is CgroupVersion.V2 and not driver.sandbox:
        path = driver.stat_path(SCRATCH, Stat.CPU_STAT)
    if path is not None and path.with_name("cgroup.kill").exists():
        return _SUPPORTED
    return _unsupported("no cgroup.kill: processes are signalled one by one")


def _probe_reclaim(driver: CgroupDriver) -> KnobSupport:
    file = reclaim_file(driver, SCRATCH)
    if file is not None and file.exists() and not driver.sandbox:
        return _SUPPORTED
    return _unsupported("no memory.reclaim (v2, from 5.19 on) and no memory.force_empty (v1)")


def _node_pressure(proc: Path, _sys: Path) -> KnobSupport:
    try:
        parse_pressure((proc / "pressure/cpu").read_text())
    except (OSError, ValueError) as error:
        return _unsupported(f"/proc/pressure: {error}")
    return _SUPPORTED


def _resctrl(_proc: Path, sys: Path) -> KnobSupport:
    if not (sys / "fs/resctrl").is_dir():
        return _unsupported("this kernel or processor has no resctrl")
    if not (sys / "fs/resctrl/schemata").exists():
        return _unsupported("/sys/fs/resctrl is not mounted")
    return _SUPPORTED


def core_sched_files(sysctl: str | None, features: str | None) -> bool:
    """Whether the files of Anolis' kernel show core scheduling, from their texts (None: no such file)."""
    return sysctl is not None or not {"CORE_SCHED", "NO_CORE_SCHED"}.isdisjoint((features or "").split())


def _core_scheduling(proc: Path, sys: Path) -> KnobSupport:
    if core_sched_files(_text(proc / "sys/kernel/sched_core"), _text(sys / "kernel/debug/sched_features")):
        return _SUPPORTED
    import ctypes  # costs a megabyte of memory, which only this call needs

    libc = ctypes.CDLL(None, use_errno=True)
    cookie = ctypes.c_ulonglong()
    if libc.prctl(PR_SCHED_CORE, PR_SCHED_CORE_GET, 0, 0, ctypes.byref(cookie)) == 0:
        return _SUPPORTED
    return _unsupported(f"prctl(PR_SCHED_CORE): {os.strerror(ctypes.get_errno())}")


def _affinity(_proc: Path, _sys: Path) -> KnobSupport:
    try:
        os.sched_setaffinity(0, os.sched_getaffinity(0))
    except OSError as error:
        return _unsupported(f"sched_setaffinity: {error.strerror}")
    return _SUPPORTED


def _slices(_proc: Path, _sys: Path) -> KnobSupport:
    from cotenant_node_executor.targets.other.threads import honours_slices  # with ctypes

    try:
        honoured = honours_slices()
    except (OSError, ValueError) as error:
        return _unsupported(f"sched_setattr: {error}")
    return _SUPPORTED if honoured else _unsupported("this kernel ignores a thread's own slice (honoured from 6.12 on)")


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _exists(path: str, what: str) -> Callable[[Path, Path], KnobSupport]:
    def probe(proc: Path, sys: Path) -> KnobSupport:
        root, _, rest = path.partition("/")
        found = ((proc if root == "proc" else sys) / rest).exists()
        return _SUPPORTED if found else _unsupported(f"no /{path}: {what}")

    return probe


_FACILITIES: dict[str, Callable[[Path, Path], KnobSupport]] = {
    "psi.node": _node_pressure,
    "resctrl": _resctrl,
    "core_sched": _core_scheduling,
    THREADS: _affinity,
    SLICES: _slices,
    "page_idle": _exists("sys/kernel/mm/page_idle/bitmap", "this kernel cannot tell which pages are idle"),
    "kidled": _exists("sys/kernel/mm/kidled/scan_period_in_seconds", "cold memory is known to Anolis' kernel only"),
    "memcg_reaper": _exists("sys/kernel/mm/memcg_reaper/reap_background", "known to Anolis' kernel only"),
    "group_identity": _exists("proc/sys/kernel/sched_group_identity_enabled", "known to Anolis' kernel only"),
    "damon": _exists("sys/kernel/mm/damon/admin", "this kernel has no DAMON"),
}
