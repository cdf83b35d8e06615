"""The environment of a colocation benchmark: one parent group with limits, one folder, and the process that removes both.

In: nothing. Out: a group whose processes together have at most `cases.MEMORY_BYTES` and `cases.MOST_PROCESSES`, in which the
executor's subtree lies and, as `uncontrolled`, a flat group of plain processes. Raises BenchError where this user may not make
control groups: without them there is nothing to measure.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cotenant_console.demo.interpreter import choose_interpreter
from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.interface import CgroupDriver, Knob
from cotenant_verification.bench.colocation import cleanup
from cotenant_verification.bench.colocation.cases import MEMORY_BYTES, MOST_PROCESSES
from cotenant_verification.bench.testbed import BenchError

FLAT = "all"
POLL_SECONDS = 0.05
RT_RUNTIME_US = 900_000
"""Microseconds of every second, for the parent group: below the machine's 950,000, above the services' budget."""
PLAIN_OOM_SCORE_ADJ = 1000
"""Above every pod's; equal among plain processes, of which the kernel then ends the largest."""
END_SECONDS = cleanup.UP_SECONDS + cleanup.KILL_SECONDS + 10.0


class Ground:
    """Use as a context."""

    def __init__(self, *, realtime: bool = False) -> None:
        """`realtime`: the group gets most of the machine's budget for real-time groups, where the kernel has one."""
        self._realtime = realtime
        self.folder = Path(tempfile.mkdtemp(prefix=cleanup.FOLDER_PREFIX))
        self.base = self.folder.name
        self.service, self.neighbour = (self._copied(name) for name in ("service.py", "neighbour.py"))
        self.interpreter = choose_interpreter(self.service)
        self._cleanup = subprocess.Popen(
            [sys.executable, "-m", cleanup.__spec__.name, self.base, str(self.folder)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._driver: CgroupDriver | None = None
        self._plain: list[subprocess.Popen[bytes]] = []

    def _copied(self, name: str) -> Path:
        """A program where every user can read it."""
        self.folder.chmod(0o755)
        folder = self.folder / "programs"
        folder.mkdir(exist_ok=True)
        copy = folder / name
        shutil.copyfile(Path(__file__).with_name(name), copy)
        copy.chmod(0o644)
        return copy

    def __enter__(self) -> Ground:
        try:
            self._driver = open_driver(self.base, "uncontrolled")
            self._driver.create(FLAT)
            self._limit(Knob.MEMORY_LIMIT, MEMORY_BYTES)
            self._limit(Knob.PIDS_MAX, MOST_PROCESSES)
            if self._realtime:
                self._give_budget()
        except BenchError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise BenchError(f"control groups cannot be made here ({error}): run it as root") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _limit(self, knob: Knob, value: int) -> None:
        """Write a limit of the parent group."""
        assert self._driver is not None
        own = self._driver.path("", knob)
        if own is None:
            if knob is Knob.CPU_RT_RUNTIME:
                return
            raise BenchError(f"this machine cannot limit {knob.value}: hogs and fork bombs would harm it")
        (own.parents[2] / own.name).write_text(str(value), encoding="ascii")

    def _give_budget(self) -> None:
        try:
            self._limit(Knob.CPU_RT_RUNTIME, RT_RUNTIME_US)
        except FileNotFoundError:  # this kernel has no budgets for real-time groups
            return
        except OSError as error:
            text = f"another control group has the machine's budget for real-time groups ({error.strerror})"
            raise BenchError(f"{text}: end what is real-time there, or leave out --class realtime") from error

    @property
    def environment(self) -> dict[str, str]:
        """For `cotenant up`: its executor's subtree lies in the parent group, and may evict for memory."""
        return {**os.environ, "COTENANT_CGROUP_BASE": self.base, "COTENANT_FEATURE_GATES": "BEMemoryEvict=true"}

    def watch_stack(self, pid: int) -> None:
        """End a stack together with everything else."""
        assert self._cleanup.stdin is not None
        self._cleanup.stdin.write(f"up {pid}\n".encode())
        self._cleanup.stdin.flush()

    def writable(self) -> Path:
        """A folder in which all pods may make files, on a disk."""
        folder = self.folder / "files"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
        return folder

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a plain process in the flat group, as a machine without cotenant has it.

        Where the parent group's memory ends, the kernel ends one of these and not a pod that waits for its next window.
        """
        assert self._driver is not None
        join = " && ".join(f"echo $$ > {path}" for path in self._driver.procs_paths(FLAT))
        join += f" && echo {PLAIN_OOM_SCORE_ADJ} > /proc/$$/oom_score_adj"
        command = ["/bin/sh", "-c", f'{join} && exec "$@"', "sh", *arguments]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._plain.append(process)
        return process

    def end_plain(self, *kept: subprocess.Popen[bytes]) -> None:
        """Kill all processes in the flat group except these."""
        assert self._driver is not None
        pids = self._driver.path("", Knob.PIDS_MAX)
        assert pids is not None
        pids.write_text("0")  # a fork bomb cannot be faster than this
        spared = {process.pid for process in kept}
        for _ in range(200):
            left = [pid for pid in self._driver.pids(FLAT) if pid not in spared]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            for process in self._plain:
                process.poll()
            if not left:
                break
            time.sleep(POLL_SECONDS)
        self._plain = [process for process in self._plain if process.poll() is None]
        pids.write_text("max")

    def close(self) -> None:
        """Remove everything, and wait for it. Raises BenchError if something remains."""
        try:
            _, errors = self._cleanup.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{self.base} is not removed after {END_SECONDS:.0f} s") from error
        for process in self._plain:
            process.wait()
        if self._cleanup.returncode:
            raise BenchError(errors.decode(errors="replace").strip() or f"{self.base} cannot be removed")
