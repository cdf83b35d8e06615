"""Ending the processes of a pod, or of one attempt of a container that is started again.

In: the order, in every cycle until it has taken effect; the groups of the containers. Out: SIGTERM to the program once (to
every process of its group, if the program is gone), SIGKILL to the whole group after the grace period.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from cotenant_node_executor.runtime.container_files import newest_attempt
from cotenant_node_executor.runtime.interface import EndAttempt, Stop
from cotenant_node_executor.targets.interface import CgroupDriver


class _Ending(msgspec.Struct):
    """A pod that is being ended, or attempts of its containers. Bound: its containers."""

    deadline: datetime | None = None
    signalled: set[str] = msgspec.field(default_factory=set)
    attempts: dict[str, tuple[int, datetime]] = msgspec.field(default_factory=dict)
    """Attempts that are ended alone, and when they are killed, by container."""


class ProcessEndings:
    """What is being ended, by pod. `folder`: of a pod's container."""

    def __init__(self, driver: CgroupDriver, folder: Callable[[str, str], Path]) -> None:
        self._driver = driver
        self._folder = folder
        self._pods: dict[str, _Ending] = {}

    def stop(self, order: Stop, group: str, containers: Iterable[str], now: datetime) -> None:
        """Begin or continue to end a pod."""
        ending = self._pods.setdefault(order.uid, _Ending())
        deadline = now + timedelta(seconds=max(order.grace_seconds, 0))
        # A second order may shorten the grace period, never extend it.
        ending.deadline = deadline if ending.deadline is None else min(ending.deadline, deadline)
        for container in containers:
            pids = self._driver.pids(f"{group}/{container}")
            if not pids:
                continue
            if now >= ending.deadline:
                self._driver.kill(f"{group}/{container}")
            elif container not in ending.signalled:
                self._terminate(order.uid, container, pids)
                ending.signalled.add(container)

    def end_attempt(self, order: EndAttempt, group: str, now: datetime) -> None:
        """Begin or continue to end one attempt of a container."""
        files = newest_attempt(self._folder(order.uid, order.container))
        if files is None or files.attempt != order.attempt:
            return
        pids = self._driver.pids(f"{group}/{order.container}")
        if not pids:
            return
        attempts = self._pods.setdefault(order.uid, _Ending()).attempts
        attempt, deadline = attempts.get(order.container, (-1, now))
        if attempt != order.attempt:
            deadline = now + timedelta(seconds=max(order.grace_seconds, 0))
            attempts[order.container] = order.attempt, deadline
            if now < deadline:
                self._terminate(order.uid, order.container, pids)
        if now >= deadline:
            self._driver.kill(f"{group}/{order.container}")

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._pods.pop(uid, None)

    def _terminate(self, uid: str, container: str, pids: list[int]) -> None:
        files = newest_attempt(self._folder(uid, container))
        program = files.number("pid") if files is not None else None
        for pid in [program] if program in pids else pids:
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
