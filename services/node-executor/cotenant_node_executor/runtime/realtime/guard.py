"""The guard of the real-time class: it gives threads the class, and demotes them before they starve the machine.

In: on standard input one line of JSON for each of the executor's cycles:

    {groups: {name: [directory]}, usage: {name: file}, cpus, share, budgets: {name: share}, procs: [file], silence}

the groups whose threads shall be SCHED_FIFO; the file that counts each group's CPU time; how many CPUs there are; the share
of their time that real-time threads may have (1 without budgets), and each group's own; how long the executor may be silent,
in seconds. Out: on standard output `{ready:
true}` or `{refused: why}` once, `{took: true}` for the lines that it read, and `{demoted: {name: why}}` whenever it takes the
class away. A group that was demoted
stays in the fair class until the executor leaves it out of a line and names it again.

The class is taken away from all groups when together they used OVERLOAD of the CPU time that they may have over the last
second; from one group when it used SPENT of its own budget; from all when the executor is silent for too long, and for good
when it ends. Threads that the groups start meanwhile are looked for until none is left.

It runs as SCHED_FIFO above the threads that it guards, in a control group and with a budget of its own, and every TICK_SECONDS.
Standard library only; run as `python -I -S guard.py`, or imported for `demote`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import time
from collections import deque
from collections.abc import Iterable, Iterator

PRIORITY, GUARD_PRIORITY = 10, 20
TICK_SECONDS = 0.01
PROMOTE_SECONDS = 0.2
"""How soon new threads get the class."""
WINDOW_NS = 1_000_000_000
BUDGET_NS = 10_000_000_000
OVERLOAD, SPENT = 0.95, 0.95
LEAST_ALLOWED = 0.5
"""The least share of what real-time threads may use, if the guard itself uses much, as on a slow machine."""
HUNG_SECONDS = 5.0
ROUNDS = 50
"""Passes over threads that were started while their group was being demoted."""
LARGEST_LINE = 1 << 20
RTTIME_LIMIT_US = 2_000_000
"""The kernel ends a guard that runs this long without sleeping, whatever its budget; the executor then restores all threads."""


def threads_below(directories: Iterable[str]) -> Iterator[int]:
    """The threads in these directories and below: `tasks` on cgroup v1, `cgroup.threads` on v2."""
    for top in directories:
        for directory, _, files in os.walk(top):
            name = "tasks" if "tasks" in files else "cgroup.threads"
            with contextlib.suppress(OSError), open(f"{directory}/{name}", encoding="ascii") as file:
                yield from (int(tid) for tid in file.read().split())


def promote(directories: Iterable[str]) -> tuple[list[int], str]:
    """Give every thread the class; the threads, and why the kernel refuses, or ""."""
    found = [*threads_below(directories)]
    for tid in found:
        try:
            if os.sched_getscheduler(tid) & ~os.SCHED_RESET_ON_FORK != os.SCHED_FIFO:
                os.sched_setscheduler(tid, os.SCHED_FIFO, os.sched_param(PRIORITY))
        except ProcessLookupError:
            continue
        except OSError as error:
            return found, f"SCHED_FIFO: {error.strerror}"
    return found, ""


def make_fair(tids: Iterable[int]) -> bool:
    """Make these threads fair; True if one was real-time."""
    had = False
    for tid in tids:
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(tid) & ~os.SCHED_RESET_ON_FORK in (os.SCHED_FIFO, os.SCHED_RR):
                had = True
                os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))
    return had


def demote(directories: Iterable[str]) -> bool:
    """Make every thread fair, in rounds until none is real-time; True if one was."""
    tops = [*directories]
    rounds = 0
    while make_fair(threads_below(tops)) and rounds < ROUNDS:
        rounds += 1
    return rounds > 0


class Meter:
    """The CPU time of one group over a sliding window. Bound: the readings of the window."""

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._readings: deque[tuple[int, int]] = deque()

    def add(self, now_ns: int, used_ns: int) -> None:
        """Take a reading; keep one that is as old as the window."""
        self._readings.append((now_ns, used_ns))
        while len(self._readings) > 1 and now_ns - self._readings[1][0] >= self._window_ns:
            self._readings.popleft()

    @property
    def used(self) -> float:
        """CPUs used over the window; 0 before it is full."""
        (since, before), (now, last) = self._readings[0], self._readings[-1]
        return (last - before) / (now - since) if now - since >= self._window_ns else 0.0


def usage_ns(file: str) -> int | None:
    """The CPU time of a group in nanoseconds, from cpuacct.usage (v1) or cpu.stat (v2); None where it is gone."""
    try:
        with open(file, encoding="ascii") as opened:
            text = opened.read()
    except OSError:
        return None
    if text.startswith("usage_usec"):
        return int(text.split(None, 2)[1]) * 1000
    return int(text)


class Guard:
    """The state of one guard; `tick` is called every TICK_SECONDS."""

    def __init__(self, now: float) -> None:
        self.wanted: dict[str, list[str]] = {}
        self.demoted: dict[str, str] = {}
        self._usage: dict[str, str] = {}
        self._cpus, self._share = 1, 1.0
        self._budgets: dict[str, float] = {}
        self._threads: dict[str, list[int]] = {}
        """As of the last promotion, by group: at an overload these are demoted first, without reading directories."""
        self._own = Meter(WINDOW_NS)
        self._seconds: dict[str, Meter] = {}
        self._periods: dict[str, Meter] = {}
        self._last_line_at, self._silence = now, HUNG_SECONDS
        self._promoted_at = self._measured_at = 0.0

    def take(self, line: dict[str, object], now: float) -> None:
        """Take the executor's newest line: groups that are no longer listed are demoted at once."""
        groups, usage, budgets = line["groups"], line["usage"], line["budgets"]
        assert isinstance(groups, dict)
        assert isinstance(usage, dict)
        assert isinstance(budgets, dict)
        self._last_line_at, self._silence = now, float(str(line.get("silence", HUNG_SECONDS)))
        for name in [name for name in self.wanted if name not in groups]:
            demote(self.wanted.pop(name))
            for table in (self.demoted, self._seconds, self._periods, self._threads):
                table.pop(name, None)
        self.wanted, self._usage, self._budgets = groups, usage, budgets
        self._cpus, self._share = int(str(line["cpus"])), float(str(line["share"]))

    def tick(self, now: float) -> dict[str, str]:
        """Run all due checks; the groups that were demoted now, with the reason."""
        on = [name for name in self.wanted if name not in self.demoted]
        if not on:
            return {}
        if now - self._last_line_at > self._silence:
            return self._demote(on, f"the executor is silent for {self._silence:.0f} s")
        now_ns = int(now * 1e9)
        slow = now - self._measured_at >= PROMOTE_SECONDS
        for name in on:
            used = usage_ns(self._usage.get(name, ""))
            if used is not None:
                self._seconds.setdefault(name, Meter(WINDOW_NS)).add(now_ns, used)
                if slow:
                    self._periods.setdefault(name, Meter(BUDGET_NS)).add(now_ns, used)
        if slow:
            self._measured_at = now
        together = sum(self._seconds[name].used for name in on if name in self._seconds)
        allowed = self._cpus * self._share
        if not self._budgets:  # the guard runs on the same CPUs
            self._own.add(now_ns, time.process_time_ns())
            allowed = max(allowed - self._own.used, allowed * LEAST_ALLOWED)
        if together >= OVERLOAD * allowed:
            text = f"real-time threads used {together:.2f} of the {allowed:.2f} CPUs that they may use, for a second"
            return self._demote(on, text)
        found: dict[str, str] = {}
        for name in on:
            own = self._budgets.get(name, 1.0)
            if own < 1 and name in self._periods and self._periods[name].used >= SPENT * own:
                text = f"used {self._periods[name].used:.2f} CPUs over 10 s; its budget is {own:.2f} of each"
                found |= self._demote([name], text)
        if now - self._promoted_at >= PROMOTE_SECONDS:
            self._promoted_at = now
            for name in on:
                if name not in found:
                    self._threads[name], why = promote(self.wanted[name])
                    found |= self._demote([name], why) if why else {}
        return found

    def _demote(self, names: list[str], why: str) -> dict[str, str]:
        began = time.monotonic()
        for name in names:
            make_fair(self._threads.pop(name, ()))
        ended = time.monotonic()
        for name in names:  # threads started in the meantime
            ended = time.monotonic() if demote(self.wanted[name]) else ended
        text = f"{why}; the last thread was fair after {1e3 * (ended - began):.1f} ms"
        found = dict.fromkeys(names, text)
        self.demoted |= found
        return found

    def end(self) -> None:
        """Demote all threads to the fair class."""
        for directories in self.wanted.values():
            demote(directories)


def say(**members: object) -> None:
    """Write one line to the executor; ignored if it has ended."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(members).encode() + b"\n")


def take_own_class(procs: Iterable[str]) -> str:
    """Join the guard's own group, and run above the guarded threads; why the kernel refuses, or ""."""
    try:
        for file in procs:
            with open(file, "a", encoding="ascii") as opened:
                opened.write(f"{os.getpid()}\n")
        resource.setrlimit(resource.RLIMIT_RTTIME, (RTTIME_LIMIT_US, RTTIME_LIMIT_US))
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(GUARD_PRIORITY))
    except OSError as error:
        return f"the guard cannot be SCHED_FIFO: {error.strerror}"
    except ValueError as error:
        return f"the guard's running time cannot be limited: {error}"
    return ""


def main() -> None:
    """Guard until standard input ends."""
    os.set_blocking(0, False)
    guard, waiting, ready = Guard(time.monotonic()), b"", False
    poll = select.poll()
    poll.register(0, select.POLLIN)
    try:
        while True:
            if poll.poll(TICK_SECONDS * 1000):
                read = os.read(0, LARGEST_LINE)
                if not read:
                    return
                *lines, waiting = (waiting + read).split(b"\n")
                if lines:
                    newest = json.loads(lines[-1])
                    if not ready:
                        if why := take_own_class(newest["procs"]):
                            say(refused=why)
                            return
                        ready = True
                        say(ready=True)
                    guard.take(newest, time.monotonic())
                    say(took=True)
            if ready and (found := guard.tick(time.monotonic())):
                say(demoted=found)
    finally:
        guard.end()


if __name__ == "__main__":
    main()
