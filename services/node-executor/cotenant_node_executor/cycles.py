"""The cycles of one node: when the next one is due, and which incarnation of the node runs it.

In: the time, the machine's wake-ups, the shell's calls. Out: the events of each cycle, posted. One incarnation acts at a time.
While LOG feeds it, the shell runs its cycles between deliveries (`run_one`). When its reader broke off, it goes on by itself
until the next incarnation is loaded (`run_alone`): it protects services and stops pods, and begins nothing
(`ExecutorNode.cut_off`). `hand_over` is one call between two cycles, so nothing is done twice and nothing is left out.

Bounds: one cycle at a time; at most one pause of a sample period between two of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cotenant.events.envelope import Event
from cotenant.log.waits import set_within
from cotenant_node_executor.core.node import ExecutorNode
from cotenant_node_executor.runtime.interface import Collect, Forget, Order
from cotenant_node_executor.wakes import Wakes

FOLLOW_UP_SECONDS = 0.1
"""Most programs end within it when they are asked to."""


class NodeCycles:
    """`post` takes a cycle's events and when it began (ns since the epoch)."""

    def __init__(
        self, node: ExecutorNode, period_seconds: float, post: Callable[[Sequence[Event], int], None]
    ) -> None:
        self.node = node
        """The incarnation that acts."""
        self._period = period_seconds
        self._post = post
        self._next_sample = 0.0
        self._awoken = True
        """The next cycle runs whatever was delivered."""
        self._woken = asyncio.Event()
        self._on_wake: Callable[[], None] = lambda: None
        self._alone = asyncio.Event()
        """LOG does not feed the node."""
        self._ordered: Sequence[Order] = ()
        self._follow_up = FOLLOW_UP_SECONDS
        self._wakes = Wakes(self.wake)

    def wake(self) -> None:
        """Run the next cycle now."""
        self._awoken = True
        self._woken.set()
        self._on_wake()

    def when_woken(self, call: Callable[[], None]) -> None:
        """Call a function, which ends the shell's wait for deliveries, with each wake-up."""
        self._on_wake = call

    def pause(self) -> float:
        """Return how long to wait for deliveries or a wake-up before the next cycle. The effect of orders is checked before
        the next sample: after FOLLOW_UP_SECONDS, then twice as long each time, as long as the orders stay the same. Orders
        that only remove what ended pods have left can wait for the sample."""
        if self.node.core.holds_reports:
            return 0.0
        until_sample = max(0.0, self._next_sample - asyncio.get_running_loop().time())
        ordered = self.node.ordered
        if all(isinstance(order, Collect | Forget) for order in ordered):
            return until_sample
        self._follow_up = FOLLOW_UP_SECONDS if ordered != self._ordered else self._follow_up * 2
        self._ordered = ordered
        return min(until_sample, self._follow_up)

    def takes_sample(self) -> bool:
        """Return whether the next cycle samples the machine; if so, the following sample is due a period later."""
        now = asyncio.get_running_loop().time()
        if now < self._next_sample and not (self.node.core.loaded and self.node.machine.wants_sample):
            return False
        self._next_sample = max(min(self._next_sample or now, now) + self._period, now)
        return True

    def run_one(self, *, delivered: bool) -> None:
        """Run a cycle. One after a delivery is left out where nothing has changed and no sample is due."""
        sample = self.takes_sample()
        if delivered and not (sample or self._awoken or self.node.due(datetime.now(UTC))):
            return
        self._awoken = False
        began_ns = time.time_ns()
        self._post(self.node.step(datetime.now(UTC), sample=sample), began_ns)
        if self.node.core.loaded:
            self._wakes.arm(self.node.machine)

    def go_on_alone(self) -> None:
        """LOG feeds the node no longer."""
        if self.node.core.loaded:
            self.node.cut_off()
            self._alone.set()

    def hand_over(self, to: ExecutorNode) -> None:
        """Let an incarnation that has loaded act from the next cycle on."""
        if to is not self.node:
            self._alone.clear()
            to.take_over(self.node)
            self.node = to

    async def run_alone(self) -> None:
        """Run cycles whenever the node is alone, until cancelled."""
        with self._wakes:
            while True:
                await self._alone.wait()
                self._woken.clear()
                self.run_one(delivered=False)
                await set_within(self._woken, self.pause())
