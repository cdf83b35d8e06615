"""What a program is started with, what the process runtime refuses, how logs are bounded and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.api.validation.process_runtime import process_runtime_errors
from cotenant_node_executor.runtime.container_files import attempt_files, drop_old_attempts, newest_attempt
from cotenant_node_executor.runtime.log_files import bound_log, read_tail
from cotenant_node_executor.runtime.program import arguments, environment, expand, user_and_group
from cotenant_node_executor.runtime.restart import backoff_seconds, restarts
from tests.unit.node_executor.builders_node_executor import pod


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "command": ["run"], **fields}


def test_references_are_replaced_escaped_ones_and_unknown_ones_stay() -> None:
    values = {"A": "1", "B": "x y"}
    assert expand("$(A)-$(B)-$$(A)-$(C)-$A-$", values) == "1-x y-$(A)-$(C)-$A-$"


def test_variables_see_those_before_them_and_command_and_args_see_all() -> None:
    entry = pod(
        "app",
        containers=[
            container(
                command=["echo", "$(NODE)"],
                args=["$(BOTH)"],
                env=[
                    {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "BOTH", "value": "$(NAME)@$(NODE)"},
                ],
            )
        ],
    )
    main = entry.spec.containers[0]
    env = environment(entry, main, "node-1")
    assert env["BOTH"] == "app@node-1"
    assert env["HOSTNAME"] == "app"
    assert arguments(main, env) == ["echo", "node-1", "app@node-1"]


def test_programs_run_as_nobody_unless_the_container_or_else_the_pod_says_otherwise() -> None:
    plain = pod("a")
    assert user_and_group(plain, plain.spec.containers[0]) == (65534, 65534)
    own = container(securityContext={"runAsUser": 0})
    both = pod("b", securityContext={"runAsUser": 10, "runAsGroup": 20}, containers=[own])
    assert user_and_group(both, both.spec.containers[0]) == (0, 20)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": [{"name": "main"}]}, "spec.containers[0].command"),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, "spec.volumes[0]"),
        ({"initContainers": [container()]}, "spec.initContainers[0]"),
        ({"containers": [container(livenessProbe={"httpGet": {"port": 1}})]}, "spec.containers[0].livenessProbe"),
        ({"containers": [container(volumeMounts=[{"name": "v"}])]}, "spec.containers[0].volumeMounts[0]"),
        ({"containers": [container(envFrom=[{"secretRef": {"name": "s"}}])]}, "spec.containers[0].envFrom[0]"),
        ({"containers": [container(lifecycle={"preStop": {}})]}, "spec.containers[0].lifecycle"),
        (
            {"containers": [container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])]},
            "spec.containers[0].env[0].valueFrom",
        ),
        (
            {"containers": [container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])]},
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath",
        ),
        ({"securityContext": {"runAsUser": -1}}, "spec.securityContext.runAsUser"),
        (
            {"containers": [container(securityContext={"privileged": True})]},
            "spec.containers[0].securityContext.privileged",
        ),
    ],
)
def test_what_plain_processes_cannot_do_is_refused_with_its_field(spec: dict[str, Any], field: str) -> None:
    assert [error.field for error in process_runtime_errors(pod("app", **spec))] == [field]


def test_an_ordinary_pod_is_not_refused() -> None:
    entry = pod("app", containers=[container(env=[{"name": "A", "value": "b"}], livenessProbe=None, image="ignored")])
    assert process_runtime_errors(entry) == []


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Always", 0, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_the_restart_policy_decides_by_exit_code(policy: str, code: int, again: bool) -> None:
    assert restarts(policy, code) is again


@given(attempt=st.integers(0, 1000), previous=st.integers(0, 300), ran=st.floats(0, 10_000))
def test_a_back_off_is_bounded_and_grows_until_a_long_run(attempt: int, previous: int, ran: float) -> None:
    wait = backoff_seconds(attempt, previous, ran)
    assert 0 <= wait <= 300
    if attempt > 0 and ran < 600:
        assert wait >= min(max(2 * previous, 10), 300)
    else:
        assert wait == 0


def test_a_log_beyond_its_bound_is_rotated_and_read_across_both_parts(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    with log.open("ab") as writer:
        writer.write(b"old 1\nold 2\n")
        writer.flush()
        assert not bound_log(log, 12)
        assert bound_log(log, 11)
        writer.write(b"new 1\n")
        writer.flush()
    assert log.read_bytes() == b"new 1\n"
    assert read_tail(log, None, 1000) == "old 1\nold 2\nnew 1\n"
    assert read_tail(log, 2, 1000) == "old 2\nnew 1\n"
    assert read_tail(log, 0, 1000) == ""


def test_a_cut_log_begins_at_the_start_of_a_line(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(b"first line\nsecond\n")
    assert read_tail(log, None, 10) == "second\n"
    assert read_tail(log, None, 7) == ""
    log.write_bytes(b"\xff\xfe broken\n")
    assert "broken" in read_tail(log, None, 100)


def test_only_the_last_attempts_keep_their_files(tmp_path: Path) -> None:
    for number in range(12):
        files = attempt_files(tmp_path, number)
        files.file("launch").write_text("{}")
        files.file("log").write_text("x")
        drop_old_attempts(tmp_path, number)
    newest = newest_attempt(tmp_path)
    assert newest is not None
    assert newest.attempt == 11
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10.launch", "10.log", "11.launch", "11.log"]
