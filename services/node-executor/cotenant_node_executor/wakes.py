"""The machine's events that wake the cycles between samples: a container ended, a check found something urgent.

In: the machine's descriptors. Each is watched by the event loop until it is readable once, and again after the cycle that saw
why (`arm`): so there is no busy loop while no cycle runs, as during the first load of the node. A look runs no cycle unless it
found something, and returns when to look again; if it does not, the next cycle looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from cotenant_node_executor.core.node import Machine


class Wakes:
    """`wake` runs the next cycle now. Bound: the machine's descriptors, one look that is due."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._armed: set[int] = set()
        self._due: asyncio.TimerHandle | None = None

    def __enter__(self) -> Wakes:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for descriptor in tuple(self._armed):
            self._disarm(descriptor)
        if self._due is not None:
            self._due.cancel()

    def arm(self, machine: Machine) -> None:
        """Wake at the next event."""
        loop = asyncio.get_running_loop()
        for descriptor in machine.wakes:
            if descriptor not in self._armed:
                self._armed.add(descriptor)
                loop.add_reader(descriptor, self._readable, descriptor)
        if machine.urgent is not None and machine.urgent not in self._armed:
            self._armed.add(machine.urgent)
            loop.add_reader(machine.urgent, self._look, machine)
        if machine.urgent is not None and self._due is None:
            self._look(machine)

    def _readable(self, descriptor: int) -> None:
        self._disarm(descriptor)
        self._wake()

    def _look(self, machine: Machine) -> None:
        if self._due is not None:
            self._due.cancel()
        found = machine.look()
        if found.cycle:
            self._wake()
        loop = asyncio.get_running_loop()
        self._due = loop.call_later(found.again, self._look, machine) if found.again is not None else None

    def _disarm(self, descriptor: int) -> None:
        self._armed.discard(descriptor)
        asyncio.get_running_loop().remove_reader(descriptor)
