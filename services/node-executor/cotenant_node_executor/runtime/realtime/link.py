"""The executor's side of the guard: it starts the guard, sends it the groups every cycle, and restores all if it dies.

In: the groups that shall be real-time (`targets.other.realtime`). Out: `RealtimeState`: the groups whose class the guard
revoked, why it refuses. The guard runs while a group is desired. It is killed, and every group is put back into the fair class,
if it has not answered for HUNG_SECONDS or has ended; strategies get that as a reason like any other.

The directory around all nodes' subtrees gets the budget that the subtree needs, and its own back at the end.

Bound: MOST_BYTES of an answer that is not complete. Over 300 lines: each method is a step of one protocol.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from cotenant_node_executor.runtime.realtime.guard import demote
from cotenant_node_executor.runtime.realtime.reserve import LEAST, kept_for_others
from cotenant_node_executor.targets.interface import ROOT_GROUP, CgroupDriver, Knob, Stat
from cotenant_node_executor.targets.other.realtime import (
    FAIR,
    GUARD_US,
    REALTIME,
    SECOND_US,
    SERVICES_US,
    SUBTREE_US,
    RealtimeState,
    pod_share_us,
)

logger = logging.getLogger(__name__)

GROUP = "guard"
PROGRAM = Path(__file__).with_name("guard.py")
HUNG_SECONDS = 5.0
START_FACTOR = 6
"""Additional time for a guard to become ready: nothing is real-time before."""
MOST_BYTES = 1 << 20
END_SECONDS = 5.0


class _Answer(msgspec.Struct):
    ready: bool = False
    refused: str = ""
    demoted: dict[str, str] = {}
    took: bool = False


class GuardLink:
    """Of one executor."""

    def __init__(
        self, driver: CgroupDriver, cpus: int, *, program: Path = PROGRAM, hung_seconds: float = HUNG_SECONDS
    ) -> None:
        self._driver = driver
        self._cpus = cpus
        self._program = program
        self.hung_seconds = hung_seconds
        """How long the guard may not answer, and the executor may not write to it."""
        self._kept = kept_for_others()
        """Share of each CPU for fair tasks; applies if groups have no budgets."""
        self._wanted: dict[str, None] = {}
        """Groups whose last requested class is real-time."""
        self._taken: dict[str, str] = {}
        self._refused = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._unanswered_since: float | None = None
        """When the oldest unanswered message to the guard was sent; None: it has answered everything."""
        self._answer = b""
        self._family_us: str | None = None
        """The budget of the directory around the subtrees before it was raised; None: as it was."""

    @property
    def state(self) -> RealtimeState:
        """The classes that the guard revoked, and why it refuses."""
        return RealtimeState(dict(self._taken), self._refused)

    @property
    def guard_pid(self) -> int:
        """The guard's process; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    def class_of(self, group: str) -> str | None:
        """The class that was last requested; None if the group is gone."""
        if not self._driver.exists(group):
            return None
        return REALTIME if group in self._wanted else FAIR

    def give(self, group: str) -> None:
        """Make the group's threads real-time."""
        self._taken.pop(group, None)
        self._wanted[group] = None
        if self._refused:
            self._taken[group] = self._refused
            return
        if self._process is None:
            self._start()
        self._send()

    def take(self, group: str) -> None:
        """Make them fair, before this returns."""
        self._wanted.pop(group, None)
        self._taken.pop(group, None)
        self._send()
        demote(self._directories(group))

    def before_budgets(self, kept: set[str]) -> None:
        """Before budgets are written: no thread of a group that is not kept is real-time, so that budgets can be lowered; the
        directories above give enough to those that are kept. The requested class stays on record until another one is
        requested."""
        self._forget_gone()
        leaving = [group for group in self._wanted if group not in kept and group not in self._taken]
        if leaving:
            self._taken.update(dict.fromkeys(leaving, "no longer requested"))
            self._send()
            for group in leaving:
                demote(self._directories(group))
        if kept - self._wanted.keys():
            self._refused = ""
        if kept:
            self._raise_family()
        elif self._process is not None:
            self._stop()

    def _raise_family(self) -> None:
        """Give the directory around the subtrees the budget of this one."""
        path = self._driver.path(ROOT_GROUP, Knob.CPU_RT_RUNTIME)
        if path is None or self._family_us is not None:
            return
        family = path.parent.parent / path.name
        try:
            present = family.read_text(encoding="ascii").strip()
            if 0 <= int(present) < SUBTREE_US:
                family.write_text(str(SUBTREE_US), encoding="ascii")
                self._family_us = present
        except FileNotFoundError:
            return
        except OSError as error:
            self._refused = f"{family} is not {SUBTREE_US} us of a second ({error.strerror}): the directories above give less"

    def beat(self) -> None:
        """Once a cycle: send the guard its groups, and read its answers."""
        self._forget_gone()
        if self._process is None:
            if not self._wanted:
                self._lower_family()
            return
        self._read()
        if self._process.poll() is not None:
            self._put_back(self._refused or "the guard ended")
        elif self._hung:
            self._put_back(f"the guard does not answer for {self._patience:g} s")
        else:
            self._send()

    @property
    def _patience(self) -> float:
        return self.hung_seconds if self._ready else START_FACTOR * self.hung_seconds

    @property
    def _hung(self) -> bool:
        return self._unanswered_since is not None and time.monotonic() - self._unanswered_since > self._patience

    def close(self) -> None:
        """End the guard, which demotes everything, and verify that."""
        groups = [*self._wanted]
        self._stop()
        for group in groups:
            demote(self._directories(group))
        self._wanted.clear()
        self._lower_family()

    def _forget_gone(self) -> None:
        """Removed groups no longer have a part of the budget."""
        for group in [group for group in self._wanted if not self._driver.exists(group)]:
            del self._wanted[group]
            self._taken.pop(group, None)

    def _directories(self, group: str) -> list[str]:
        path = self._driver.path(group, Knob.CPU_SHARES)
        return [] if path is None else [str(path.parent)]

    def _start(self) -> None:
        """Start the guard in a group and with a budget of its own."""
        try:
            self._driver.create(GROUP)
            if self._budgeted:
                self._driver.write(GROUP, Knob.CPU_RT_RUNTIME, str(GUARD_US))
            elif self._kept < LEAST:
                text = f"this kernel keeps {100 * self._kept:.1f} % of each CPU for what is not real-time, 5 % is needed"
                self._refused = f"{text} (kernel.sched_rt_runtime_us, fair_server in debugfs)"
                self._put_back(self._refused)
                return
            command = [sys.executable, "-I", "-S", str(self._program)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env={}
            )
        except OSError as error:
            self._put_back(f"the guard cannot be started: {error.strerror or error}")
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._unanswered_since, self._answer, self._ready = None, b"", False
        logger.info("the guard of the real-time class is process %d", self.guard_pid)

    @property
    def _budgeted(self) -> bool:
        path = self._driver.path(ROOT_GROUP, Knob.CPU_RT_RUNTIME)
        return path is not None and path.exists()

    def _send(self) -> None:
        """Send the groups; nothing is sent while the pipe is full, because the guard does not read."""
        if self._process is None or self._process.stdin is None:
            return
        guarded = [group for group in self._wanted if self._taken.get(group) is None]
        share = pod_share_us(len(self._wanted)) / SECOND_US
        usage = {group: str(self._driver.stat_path(group, Stat.CPU_USAGE) or "") for group in guarded}
        line = {
            "groups": {group: self._directories(group) for group in guarded},
            "usage": usage,
            "cpus": self._cpus,
            "share": SERVICES_US / SECOND_US if self._budgeted else 1.0 - self._kept,
            "budgets": dict.fromkeys(guarded, share) if self._budgeted else {},
            "procs": [str(path) for path in self._driver.procs_paths(GROUP)],
            "silence": self.hung_seconds,
        }
        if self._unanswered_since is None:
            self._unanswered_since = time.monotonic()
        with contextlib.suppress(OSError):  # the next cycle notices if it has ended
            os.write(self._process.stdin.fileno(), json.dumps(line).encode() + b"\n")

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            while read := os.read(self._process.stdout.fileno(), MOST_BYTES):
                self._answer += read
        *lines, self._answer = self._answer.split(b"\n")
        for line in lines:
            answer = msgspec.json.decode(line, type=_Answer)
            self._ready = self._ready or answer.ready
            if answer.took:
                self._unanswered_since = None
            self._refused = answer.refused or self._refused
            self._taken.update({group: why for group, why in answer.demoted.items() if group in self._wanted})
        self._answer = self._answer[:MOST_BYTES]

    def _put_back(self, why: str) -> None:
        """The guard has ended or is being ended: no thread may be real-time without it."""
        logger.warning("the real-time class ends: %s", why)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget_process()
        for group in self._wanted:
            demote(self._directories(group))
            self._taken[group] = why

    def _stop(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget_process()
        with contextlib.suppress(OSError):
            if self._budgeted:
                # The kernel counts the budget of a removed group for a moment; its parent's cannot be lowered until then.
                self._driver.write(GROUP, Knob.CPU_RT_RUNTIME, "0")
            self._driver.remove(GROUP)

    def _forget_process(self) -> None:
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process = None

    def _lower_family(self) -> None:
        path = self._driver.path(ROOT_GROUP, Knob.CPU_RT_RUNTIME)
        if path is None or self._family_us is None:
            return
        with contextlib.suppress(OSError):  # another node's subtree needs it, and lowers it later
            path.write_text("0", encoding="ascii")
            (path.parent.parent / path.name).write_text(self._family_us, encoding="ascii")
        self._family_us = None
