"""What `cotenant up` is told about its services, and what it gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cotenant_console.commands.up import command
from cotenant_console.up.services import SIMULATED, UpRun, service_process


def test_a_service_gets_its_configuration_and_the_others_do_not(tmp_path: Path) -> None:
    run = UpRun(tmp_path, "nats://127.0.0.1:4222", "host", 3, configs={"scheduler": tmp_path / "queue.yaml"})
    argv = service_process(run, "scheduler", 9000).argv
    assert argv[argv.index("--config") + 1] == str(tmp_path / "queue.yaml")
    assert "--config" not in service_process(run, "quota-tree", 9000).argv


def test_a_service_gets_its_feature_gates_on_every_node(tmp_path: Path) -> None:
    run = UpRun(tmp_path, "nats://127.0.0.1:4222", "host", 3, gates={"node-executor": "MemoryEvict=true"})
    for name in ("node-executor", SIMULATED):
        argv = service_process(run, name, 9000).argv
        assert argv[argv.index("--feature-gates") + 1] == "MemoryEvict=true"
    assert "--feature-gates" not in service_process(run, "gateway", 9000).argv


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("gateway", "'gateway' is a service: give SERVICE=GATE=true"),
        ("scheduler=Some=true", "'scheduler' is none of the services gateway, node-executor"),
    ],
)
def test_feature_gates_of_no_service_are_told(given: str, wrong: str) -> None:
    done = CliRunner().invoke(command, ["--feature-gates", given])
    assert done.exit_code == 2
    assert wrong in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("scheduler", "'scheduler' is a service: give SERVICE=FILE"),
        ("scheduler=absent.yaml", "'absent.yaml' is not a file"),
        ("kubelet=queue.yaml", "'kubelet' is none of the services metrics-ingest, batch-resource-calculator, quota-tree"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_told(given: str, wrong: str) -> None:
    done = CliRunner().invoke(command, ["--config", given])
    assert done.exit_code == 2
    assert wrong in " ".join(done.output.split())
