"""Looks between two cycles: they go on by themselves while they ask for it, and a cycle begins them again."""

from __future__ import annotations

import asyncio
import os
from typing import cast

from cotenant_node_executor.core.node import Machine
from cotenant_node_executor.sampling.snapshot import TriggerCheck
from cotenant_node_executor.wakes import Wakes


class Looked:
    """A machine of which only the looks matter: it answers with these, then asks for no more."""

    wakes: tuple[int, ...] = ()

    def __init__(self, urgent: int, *answers: TriggerCheck) -> None:
        self.urgent = urgent
        self.looks = 0
        self._answers = list(answers)
        self.over = asyncio.Event()

    def look(self) -> TriggerCheck:
        self.looks += 1
        if not self._answers:
            self.over.set()
            return TriggerCheck()
        return self._answers.pop(0)


async def test_a_look_that_asks_for_another_gets_it_without_a_cycle_and_one_that_found_something_runs_one() -> None:
    urgent, woken = os.eventfd(0, os.EFD_NONBLOCK), asyncio.Event()
    machine = Looked(urgent, TriggerCheck(again=0.0), TriggerCheck(again=0.001), TriggerCheck(True, 0.0))
    try:
        with Wakes(woken.set) as wakes:
            wakes.arm(cast(Machine, machine))
            assert not woken.is_set()
            async with asyncio.timeout(10):
                await woken.wait()
                await machine.over.wait()
            assert machine.looks == 4
            wakes.arm(cast(Machine, machine))
            assert machine.looks == 5, "a look that asked for no more is taken up by the next cycle"
    finally:
        os.close(urgent)


async def test_cycles_do_not_look_more_often_than_the_looks_ask_for() -> None:
    urgent = os.eventfd(0, os.EFD_NONBLOCK)
    machine = Looked(urgent, TriggerCheck(again=3600.0))
    try:
        with Wakes(lambda: None) as wakes:
            for _ in range(5):
                wakes.arm(cast(Machine, machine))
            assert machine.looks == 1
            os.eventfd_write(urgent, 1)
            async with asyncio.timeout(10):
                await machine.over.wait()
            assert machine.looks == 2
    finally:
        os.close(urgent)
