"""The executor's threads run before batch work, and what they start does not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cotenant_node_executor.sampling.own_priority import URGENT, hurry

NICE = [sys.executable, "-c", "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs CAP_SYS_NICE")
def test_a_thread_that_hurries_starts_processes_and_threads_of_the_default_priority() -> None:
    def own() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def hurried() -> tuple[int, int, int]:
        hurry()
        with ThreadPoolExecutor(1) as below:
            thread = below.submit(own).result()
        return own(), thread, int(subprocess.run(NICE, capture_output=True, check=True).stdout)

    with ThreadPoolExecutor(1) as workers:
        assert workers.submit(hurried).result() == (URGENT, 0, 0)
