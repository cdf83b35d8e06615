"""Core-scheduling groups of containers: all processes of a group's containers share one cookie.

In: a control group, the name of its core-scheduling group. Out: the same, read from the processes' cookies. Processes that are
forked later inherit the cookie, so a container is checked again after CHECKED_FOR_NS only. Cookies of containers that ran
before are adopted: the first container with a cookie gives it to the group. OSError carries the kernel's
refusal (EINVAL where it has no core scheduling).

Bound: the containers that were checked within FORGOTTEN_AFTER_NS; outcomes of MOST_COUNTED groups, the newest. Source: core
scheduling hook, koordlet rule.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from cotenant_node_executor.targets.address import Attribute, NonCgroup, Processes
from cotenant_node_executor.targets.interface import NO_CORE_GROUPS, CookieOutcome, CoreGroups, HeldCookie
from cotenant_node_executor.targets.other.cookies import CookieCalls, add_cookie, assign_cookie, clear_cookie, read_cookie

CHECKED_FOR_NS = 30_000_000_000
FORGOTTEN_AFTER_NS = 300_000_000_000
MOST_COUNTED = 110
"""As many as a node may have pods."""
NO_GROUP = ""


class _Known(Struct):
    """A core-scheduling group: its cookie, the processes that carry it, when one was last seen."""

    cookie: int
    pids: set[int]
    seen_ns: int


class CoreGroupAccessor:
    """Cookies of the processes of control groups; `pids_of` lists them."""

    def __init__(
        self,
        calls: CookieCalls,
        pids_of: Callable[[str], Sequence[int]],
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._calls = calls
        self._pids_of = pids_of
        self._clock_ns = clock_ns
        self._groups: dict[str, _Known] = {}
        self._checked: dict[str, tuple[str, int]] = {}
        """By control group: the result of the last check, and its time."""
        self._outcomes: dict[str, CookieOutcome] = {}
        self._shown: CoreGroups | None = NO_CORE_GROUPS
        """None: out of date."""

    @property
    def shown(self) -> CoreGroups:
        """The state; the same object while nothing changed."""
        if self._shown is None:
            cookies = {
                control_group: HeldCookie(name, self._groups[name].cookie)
                for control_group, (name, _) in self._checked.items()
                if name in self._groups
            }
            self._shown = CoreGroups(cookies, dict(self._outcomes))
        return self._shown

    def read(self, place: NonCgroup, _attribute: Attribute) -> str | None:
        """The group's name, "" for no cookie, a description where it is neither; None without any process."""
        assert isinstance(place, Processes)
        now = self._clock_ns()
        known = self._checked.get(place.group)
        if known is not None and now - known[1] < CHECKED_FOR_NS:
            return known[0]
        self._forget(now)
        pids = self._pids_of(place.group)
        if not pids:
            return None
        cookie, carrying = read_cookie(self._calls, pids)
        if not cookie:
            return NO_GROUP
        name = next((name for name, group in self._groups.items() if group.cookie == cookie), f"cookie {cookie}")
        if len(carrying) < len(pids):
            return f"{name} ({len(carrying)} of {len(pids)} processes)"
        self._seen(place.group, name, carrying, now)
        return name

    def write(self, place: NonCgroup, _attribute: Attribute, value: str) -> None:
        """Put the processes into a group, or out of any."""
        assert isinstance(place, Processes)
        now = self._clock_ns()
        self._checked.pop(place.group, None)
        self._shown = None
        pids = self._pids_of(place.group)
        if not pids:
            return
        if value == NO_GROUP:
            clear_cookie(self._calls, pids)
            for group in self._groups.values():
                group.pids.difference_update(pids)
            return
        try:
            carrying = self._assigned(value, pids, now)
            if not carrying:
                raise OSError(errno.ESRCH, "no process took the cookie")
        except OSError:
            self._count(value, succeeded=False)
            raise
        self._count(value, succeeded=True)
        if len(carrying) == len(pids):
            self._seen(place.group, value, carrying, now)

    def holds(self, _attribute: Attribute, wanted: str, present: str) -> bool:
        """Whether all processes are in the group."""
        return wanted == present

    def restore(self, place: NonCgroup, attribute: Attribute, _text: str) -> None:
        """Take the processes out of their group."""
        self.write(place, attribute, NO_GROUP)

    def _assigned(self, name: str, pids: Sequence[int], now: int) -> Sequence[int]:
        """The processes that carry the group's cookie afterwards."""
        known = self._groups.get(name)
        if known is None:
            cookie, carrying = read_cookie(self._calls, pids)
            if not cookie or any(group.cookie == cookie for group in self._groups.values()):
                return self._added(name, pids, now)
            known = self._groups[name] = _Known(cookie, {*carrying}, now)
        assigned, stale, failed = assign_cookie(self._calls, pids, sorted(known.pids), known.cookie)
        known.pids.difference_update(stale)
        if failed:
            return self._added(name, pids, now)
        known.pids.update(assigned)
        known.seen_ns = now
        return assigned

    def _added(self, name: str, pids: Sequence[int], now: int) -> Sequence[int]:
        cookie, carrying = add_cookie(self._calls, pids)
        self._groups[name] = _Known(cookie, {*carrying}, now)
        return carrying

    def _count(self, name: str, *, succeeded: bool) -> None:
        before = self._outcomes.pop(name, CookieOutcome())
        self._outcomes[name] = CookieOutcome(before.succeeded + succeeded, before.failed + (not succeeded))
        while len(self._outcomes) > MOST_COUNTED:
            del self._outcomes[next(iter(self._outcomes))]

    def _seen(self, control_group: str, name: str, pids: Sequence[int], now: int) -> None:
        self._checked[control_group] = (name, now)
        self._shown = None
        known = self._groups.get(name)
        if known is not None:
            known.pids.update(pids)
            known.seen_ns = now

    def _forget(self, now: int) -> None:
        old = now - FORGOTTEN_AFTER_NS
        self._groups = {name: group for name, group in self._groups.items() if group.seen_ns > old}
        self._checked = {group: each for group, each in self._checked.items() if each[1] > old}
        self._shown = None
