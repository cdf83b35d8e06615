"""kubelet and its runtime on a real kernel, as far as control groups show them: layout, values, real processes, log links.

In: pods to begin, containers to restart and end. Out: directories below `base` in every hierarchy, as the systemd driver or
cgroupfs lays them out, with the names of containerd, cri-o or docker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from cotenant.domain.qos import KubeQoS
from cotenant_node_executor.targets.cgroup.hierarchy import V2_CONTROLLERS, read_hierarchies
from cotenant_node_executor.targets.cgroup.paths import KubeletCgroupDriver, container_dir, pod_dir, tier_dir
from cotenant_node_executor.targets.interface import CgroupVersion
from tests.integration.node_kernel.waiting import until

SLEEP = ("sleep", "100000")
BURN = ("sh", "-c", "while :; do :; done")
FILES = (
    "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_burst_us", "cpu.idle", "cpu.weight", "cpu.max", "cpu.max.burst", "cpuset.cpus",
    "memory.limit_in_bytes", "memory.max", "memory.min", "memory.low", "memory.high", "memory.oom.group",
)
"""What the executor may write and must put back."""


class KubeletTree:
    """One node's."""

    def __init__(self, base: str, layout: KubeletCgroupDriver, runtime: str, logs: Path) -> None:
        found = read_hierarchies()
        self.version = found.version
        self.layout, self.runtime, self.logs = layout, runtime, logs
        logs.mkdir(parents=True, exist_ok=True)
        mounts = list(dict.fromkeys(found.v1.values())) if found.version is CgroupVersion.V1 else []
        self.tops = [mount / base for mount in (*mounts, *([found.v2] if found.v2 is not None else []))]
        """In each hierarchy; on a hybrid machine the v2 tree too, as systemd has it."""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for qos in (KubeQoS.GUARANTEED, KubeQoS.BURSTABLE, KubeQoS.BEST_EFFORT):
            self.make(tier_dir(layout, qos))
        self.write(tier_dir(layout, KubeQoS.BEST_EFFORT), shares=2)

    # -- directories ---------------------------------------------------------------------------------------------------

    def make(self, directory: str) -> None:
        """In every hierarchy, with its controllers and CPUs, from the top."""
        for top in self.tops:
            whole = top.parent
            for part in (top.name, *directory.split("/")):
                self._enable(whole)
                whole = whole / part
                whole.mkdir(exist_ok=True)
                for name in ("cpuset.cpus", "cpuset.mems"):
                    file = whole / name
                    if self.version is CgroupVersion.V1 and file.exists() and not file.read_text().strip():
                        file.write_text((whole.parent / name).read_text())

    def _enable(self, directory: Path) -> None:
        if self.version is CgroupVersion.V2:
            for controller in V2_CONTROLLERS:
                (directory / "cgroup.subtree_control").write_text(f"+{controller}")

    def remove(self, directory: str) -> None:
        """An empty one, in every hierarchy."""
        for top in self.tops:
            if (top / directory).is_dir():
                assert until(lambda where=top / directory: _removed(where)), f"{top / directory} is in use"  # type: ignore[misc]

    def file(self, directory: str, name: str) -> Path | None:
        """A file of a group, wherever its controller lies."""
        return next((top / directory / name for top in self.tops if (top / directory / name).exists()), None)

    def read(self, directory: str, *names: str) -> str:
        """The first of these files that there is; v1 and v2 have different ones."""
        for name in names:
            file = self.file(directory, name)
            if file is not None:
                return file.read_text().strip()
        return ""

    def write(self, directory: str, *, shares: int | None = None, quota_us: int | None = None) -> None:
        """Values as kubelet and runc write them."""
        v1 = self.version is CgroupVersion.V1
        if shares is not None:
            weight = 1 + (shares - 2) * 9999 // 262142
            self._put(directory, *(("cpu.shares", str(shares)) if v1 else ("cpu.weight", str(weight))))
        if quota_us is not None:
            self._put(directory, *(("cpu.cfs_quota_us", str(quota_us)) if v1 else ("cpu.max", f"{quota_us} 100000")))

    def _put(self, directory: str, name: str, text: str) -> None:
        file = self.file(directory, name)
        assert file is not None, f"{directory} has no {name}"
        file.write_text(text)

    # -- pods ----------------------------------------------------------------------------------------------------------

    def pod(self, uid: str, qos: KubeQoS, *, shares: int = 2, quota_us: int | None = None) -> str:
        """Make a pod's group; returns its directory."""
        directory = pod_dir(self.layout, qos, uid)
        self.make(directory)
        self.write(directory, shares=shares, quota_us=quota_us)
        return directory

    def container(
        self,
        pod: str,
        name: str,
        command: Sequence[str] = SLEEP,
        *,
        shares: int = 2,
        quota_us: int | None = None,
        link: bool = True,
    ) -> tuple[str, str]:
        """Start a container; returns its id and its directory. `link`: kubelet links its log, which names it."""
        number = uuid4().hex * 2
        directory = f"{pod}/{container_dir(self.layout, f'{self.runtime}://{number}')}"
        self.make(directory)
        files = [str(top / directory / "cgroup.procs") for top in self.tops]
        enter = 'n=$1; shift; for i in $(seq $n); do echo $$ > "$1" || exit 9; shift; done; exec "$@"'
        self._running[directory] = subprocess.Popen(
            ["/bin/sh", "-c", enter, "sh", str(len(files)), *files, *command],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert until(lambda: bool(self.read(directory, "cgroup.procs"))), "the process did not enter its group"
        self.write(directory, shares=shares, quota_us=quota_us)
        if link:
            (self.logs / f"pod_default_{name}-{number}.log").symlink_to("/dev/null")
        return number, directory

    def end(self, container: str) -> None:
        """End a container, as a runtime does: the process, then its group."""
        process = self._running.pop(container)
        process.kill()
        process.wait()
        self.remove(container)

    def states(self, *, of: str = "") -> dict[str, str]:
        """Every file that may be written, in the whole tree or below a directory."""
        found: dict[str, str] = {}
        for top in self.tops:
            for directory, _, files in os.walk(top / of if of else top):
                if "/cotenant" in directory.removeprefix(str(top)):
                    continue
                for name in FILES:
                    if name in files:
                        found[f"{directory}/{name}"] = (Path(directory) / name).read_text().strip()
        return found

    def alive(self) -> bool:
        """Whether every process that was started runs."""
        return all(process.poll() is None for process in self._running.values())

    def close(self) -> None:
        """End everything; leave nothing."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        for top in self.tops:
            for directory, _, _ in sorted(os.walk(top), reverse=True):
                if "/cotenant" not in directory.removeprefix(str(top)) and directory != str(top):
                    assert until(lambda where=Path(directory): _removed(where)), f"{directory} is in use"  # type: ignore[misc]
        shutil.rmtree(self.logs, ignore_errors=True)


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        time.sleep(0.01)
        return False
    return True
