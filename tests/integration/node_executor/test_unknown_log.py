"""A LOG that is not the one that placed the pods: empty, or restored from a backup."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.integration.node_executor.executor_harness import Harness, alive, pod_manifest
from tests.nats_server import NatsServer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")

SLEEPS = "import time; time.sleep(600)"


async def unknown(harness: Harness) -> str:
    """Wait until the executor reports about LOG, and return what it says."""
    await harness.wait("the executor has loaded", harness.statuses)
    return harness.statuses()[-1].unknown_log


async def samples(harness: Harness, count: int) -> None:
    """Wait for cycles of the executor: it reports usage every second."""
    usage = sum(event.subject.startswith("usage.") for event in harness.facts)
    await harness.wait("cycles", lambda: sum(event.subject.startswith("usage.") for event in harness.facts) >= usage + count)


@pytest.mark.parametrize("executor_runs", [True, False])
async def test_on_an_empty_log_pods_run_on_until_a_person_adopts_it(
    harness: Harness, nats_server: NatsServer, executor_runs: bool
) -> None:
    harness.start()
    await harness.place(pod_manifest("keeps", SLEEPS))
    process = await harness.running("keeps")
    if not executor_runs:
        assert harness.stop() == 0
    nats_server.kill()
    shutil.rmtree(nats_server.store)
    nats_server.start()
    await harness.reopen()
    if not executor_runs:
        harness.start()
    assert "this node followed the one created at" in await unknown(harness)
    await harness.place(pod_manifest("new", SLEEPS))
    await harness.running("new")
    await samples(harness, 3)
    assert alive(process.pid)

    reports = len(harness.statuses())
    answer = await harness.adopt()
    assert (answer.was_unknown, answer.pods) == (True, 1)
    await harness.wait("LOG is adopted", lambda: len(harness.statuses()) > reports)
    assert not harness.statuses()[-1].unknown_log
    await harness.wait("the orphan is stopped", lambda: not alive(process.pid))
    assert not (await harness.adopt()).was_unknown
    assert harness.container("new") is not None

    harness.kill()
    harness.start()
    await harness.wait("the adopted LOG is remembered", lambda: len(harness.statuses()) > reports + 1)
    assert not harness.statuses()[-1].unknown_log


async def test_a_log_restored_from_a_backup_does_not_end_what_was_placed_since(
    harness: Harness, nats_server: NatsServer, tmp_path: Path
) -> None:
    nats_server.stop()
    shutil.copytree(nats_server.store, tmp_path / "backup")
    nats_server.start()
    await harness.reopen()
    harness.start()
    await harness.place(pod_manifest("since", SLEEPS))
    process = await harness.running("since")
    assert harness.stop() == 0
    nats_server.stop()
    shutil.rmtree(nats_server.store)
    shutil.copytree(tmp_path / "backup", nats_server.store)
    nats_server.start()
    await harness.reopen()
    harness.start()
    assert "this node had followed it up to" in await unknown(harness)
    await samples(harness, 2)
    assert alive(process.pid)


async def test_where_no_pod_runs_any_log_is_taken(harness: Harness, nats_server: NatsServer) -> None:
    harness.start()
    await unknown(harness)
    harness.kill()
    nats_server.kill()
    shutil.rmtree(nats_server.store)
    nats_server.start()
    await harness.reopen()
    harness.start()
    assert not await unknown(harness)
