"""A benchmark's testbed: `bench schedule --stack` says how many nodes have joined, and ends with who did not, and why; the
streams follow the disk."""

from __future__ import annotations

import pytest

from cotenant.log.contract import HISTORY, LOG
from cotenant.log.nats.jetstream import JetStream
from cotenant_console.api.credentials import NO_CREDENTIALS
from cotenant_console.up import nats_server
from cotenant_console.up.nats_server import free_port
from cotenant_verification.bench import stack, testbed
from cotenant_verification.bench.workload import synthetic


def test_more_nodes_than_one_machine_simulates_are_refused_and_three_thousand_are_not() -> None:
    fleets = stack.fleets(synthetic(3000, 1, 1))
    assert sum(len(fleet.names) for fleet in fleets) == 3000
    assert max(len(fleet.names) for fleet in fleets) <= stack.NODES_A_PROCESS
    with pytest.raises(testbed.BenchError, match=f"at most {stack.MAX_NODES} nodes, not {stack.MAX_NODES + 1}"):
        stack.fleets(synthetic(stack.MAX_NODES + 1, 1, 1))


async def test_the_wait_tells_its_progress_and_ends_where_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "STALLED_SECONDS", 1.0)
    monkeypatch.setattr(stack, "PROGRESS_SECONDS", 0.1)
    monkeypatch.setattr(stack, "POLL_SECONDS", 0.05)
    said: list[str] = []
    async with testbed.Testbed() as bed:
        port = free_port()
        # It answers, and is never ready.
        bed.start_module("executors-0", "http.server", str(port), "--bind", "127.0.0.1")
        with pytest.raises(testbed.BenchError, match=r"0 of 200 nodes joined; not ready: executors-0\. executors-0 says"):
            await stack._until_ready(bed, {"executors-0": port}, NO_CREDENTIALS, 200, said.append)
    assert set(said) == {"0 of 200 nodes joined; not ready: executors-0"}


async def test_the_wait_ends_with_the_last_words_of_a_process_that_ended() -> None:
    async with testbed.Testbed() as bed:
        bed.start_module("executors-0", "no_such_module")
        with pytest.raises(testbed.BenchError, match=r"executors-0 ended: .*No module named no_such_module"):
            await stack._until_ready(bed, {"executors-0": free_port()}, NO_CREDENTIALS, 200, lambda _: None)


async def test_three_servers_hold_streams_that_follow_their_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each of three servers on a disk with 3 GiB free: less than LOG's default bound of 8 GiB.
    monkeypatch.setattr(nats_server, "MAX_FILE_STORE_BYTES", 1 << 30)
    async with testbed.Testbed(3) as bed:
        stream = JetStream(bed.log.client)
        log, history = await stream.info(LOG), await stream.info(HISTORY)
        assert (log.config["num_replicas"], 0 < log.bound < 1 << 30) == (3, True)
        assert 0 < history.config["max_bytes"] < 1 << 30
