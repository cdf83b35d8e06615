"""What `up` shows: figures from documents, the journal of events, the plan of jobs, the lines of the screen."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cotenant.events.envelope import Event, Payload
from cotenant.events.node.execution import Change, Execution
from cotenant.events.placements import Placement
from cotenant.log.contract import EXTENSIONS, extension_bytes
from cotenant.log.nats.streams import DEFAULT_SIZES
from cotenant_console.api.endpoint import Endpoint
from cotenant_console.demo.curve import is_loaded, is_quiet, rate_at
from cotenant_console.demo.interpreter import open_to_all
from cotenant_console.demo.jobs import plan_jobs
from cotenant_console.up.figures import cpu_percent, cpu_reading, node_figures, phase_counts
from cotenant_console.up.journal import Journal, shrinks
from cotenant_console.up.nats_server import ReplicasDifferError, ServerMember, configuration, replicas_in
from cotenant_console.up.screen import Screen
from cotenant_console.up.view import DisplayState, plain_line, status_lines, summary_lines
from tests.builders import pod_document

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def stored(data: Payload, seconds: float = 1, sequence: int = 1) -> Event:
    return Event(subject="x", data=data, time=BEGAN + timedelta(seconds=seconds), sequence=sequence)


def suppressed(old: str, new: str) -> Execution:
    return Execution(
        node="n",
        topic="suppress",
        summary="besteffort quota: less room",
        changes=(Change(target="/cg/cpu.cfs_quota_us", old=old, new=new),),
    )


def test_the_machines_cpu_is_what_is_neither_idle_nor_waiting_for_disks() -> None:
    before = cpu_reading("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1\n")
    after = cpu_reading("cpu  150 0 150 780 120 0 0 0 0 0\ncpu0 1\n")
    assert cpu_percent(before, after) == pytest.approx(50.0)
    assert cpu_percent(after, after) == 0.0


def test_a_nodes_loan_counts_the_pods_that_have_not_ended() -> None:
    node = {
        "metadata": {"name": "n"},
        "status": {
            "allocatable": {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    asks = {"resources": {"requests": {"kubernetes.io/batch-cpu": "300", "kubernetes.io/batch-memory": "96Mi"}}}
    pods = [
        pod_document("a", phase="Running", nodeName="n", containers=[asks]),
        pod_document("b", phase="Succeeded", nodeName="n", containers=[asks]),
        pod_document("c", phase="Running", nodeName="other", containers=[asks]),
    ]
    [figures] = node_figures([node], pods)  # type: ignore[list-item]
    assert (figures.batch_cpu_milli, figures.batch_cpu_used_milli) == (1500, 300)
    assert (figures.batch_memory_mib, figures.batch_memory_used_mib) == (1024, 96)
    assert figures.ready


def test_pods_are_counted_by_phase_and_those_that_end_by_themselves() -> None:
    ending = pod_document("e", phase="Running")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert phase_counts([pod_document("a", phase="Pending"), pod_document("b", phase="Running"), ending]) == {
        "Pending": 1,
        "Running": 1,
        "Terminating": 1,
    }


@pytest.mark.parametrize(
    ("old", "new", "less"),
    [
        ("-1", "50000", True),
        ("max", "50000", True),
        ("50000", "60000", False),
        ("60000", "50000", True),
        ("0-3", "0-1", True),
        ("0,2", "0-3", False),
        ("50000", "-1", False),
    ],
)
def test_a_suppression_is_a_smaller_quota_or_fewer_cpus(old: str, new: str, less: bool) -> None:
    assert shrinks(suppressed(old, new)) is less


def test_the_journal_counts_only_what_happened_since_it_began() -> None:
    journal = Journal(began=BEGAN)
    placement = Placement(node="n", namespace="d", name="p", uid="u")
    journal.add(stored(placement, seconds=-5, sequence=1))
    journal.add(stored(placement, sequence=2))
    journal.add(stored(placement, sequence=3))
    journal.add(stored(suppressed("100000", "80000"), sequence=4))
    journal.add(stored(suppressed("100000", "80000"), sequence=4))
    assert (journal.placed, journal.suppressions) == (1, 1)
    assert journal.suppression_now == "n: besteffort quota: less room"
    assert [line.words for line in journal.lines] == [
        "pod d/p placed on n, counted as nothing",
        "n: besteffort quota: less room",
    ]


def test_jobs_are_submitted_one_at_a_time_up_to_the_bound_and_old_finished_ones_are_cleared() -> None:
    finished = [pod_document(f"f{i}", phase="Succeeded", created=f"2026-01-01T00:00:0{i}Z") for i in range(5)]
    plan = plan_jobs([*finished, pod_document("a", phase="Running"), pod_document("b", phase="Pending")], most_open=3)
    assert (plan.submit, plan.clear, plan.open_jobs) == (True, ("f0", "f1"), 2)
    assert not plan_jobs([pod_document("a", phase="Running")] * 3, most_open=3).submit


def test_the_day_begins_quiet_peaks_at_noon_and_ends_quiet() -> None:
    assert rate_at(0, 120, 5, 100) == pytest.approx(5)
    assert rate_at(60, 120, 5, 100) == pytest.approx(100)
    assert rate_at(120, 120, 5, 100) == pytest.approx(5)
    assert is_quiet(10, 5, 100)
    assert is_loaded(70, 5, 100)
    assert not is_quiet(50, 5, 100)
    assert not is_loaded(50, 5, 100)


def test_a_script_below_a_private_folder_is_not_open_to_all(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    script = private / "s.py"
    script.write_text("")
    script.chmod(0o644)
    assert not open_to_all(script, executable=False)
    assert not open_to_all(tmp_path / "absent", executable=False)


def view(**changes: Any) -> DisplayState:
    fields: dict[str, Any] = {
        "endpoint": Endpoint("https://127.0.0.1:8001", "nats://127.0.0.1:4222"),
        "folder": Path("/data"),
        "node": "n",
        "elapsed": 75.0,
        "until": 90.0,
        "cpu_percent": 50.0,
        "cpus": 2,
    }
    return DisplayState(**{**fields, **changes})


def test_the_screen_names_what_is_not_ready_and_every_crash() -> None:
    lines = status_lines(view(not_ready=["scheduler"], restarts=1, crashes=["scheduler ended unexpectedly (exit status 1)"]))
    assert "running 1:15 of 1:30   data /data" in lines
    assert "stack  not ready: scheduler; 1 crashes" in lines
    assert "crash  scheduler ended unexpectedly (exit status 1)" in lines


def test_plain_output_names_each_crash_once_and_what_is_not_ready(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.show(view(restarts=1, crashes=["scheduler ended unexpectedly (killed by SIGKILL)"], not_ready=["nats-server-2"]))
    screen.show(view(restarts=1, crashes=["scheduler ended unexpectedly (killed by SIGKILL)"]))
    assert capsys.readouterr().out.splitlines() == [
        "crash  scheduler ended unexpectedly (killed by SIGKILL)",
        "[1:15] cpu 50 % pods none not ready: nats-server-2",
    ]
    screen.show(view(restarts=3, crashes=["first", "nats-server-1 ended", "gateway ended"]))
    assert capsys.readouterr().out.splitlines() == ["crash  nats-server-1 ended", "crash  gateway ended"]


def test_the_summary_tells_latencies_work_and_crashes() -> None:
    load = {"quiet_p99_ms": 8.25, "loaded_p99_ms": 21.0, "answered": 100, "failed": 0}
    text = "\n".join(summary_lines(view(demo=True, load=load, placed=7, suppressions=3)))
    assert "7 pods placed, 3 suppressions" in text
    assert "quiet 8.2 ms, loaded 21.0 ms" in text
    assert text.endswith("no service crashed")
    assert "1 crashes:" in "\n".join(summary_lines(view(restarts=1, crashes=["x"])))


def test_a_plain_line_says_what_changes() -> None:
    assert plain_line(view(phases={"Running": 2})) == "[1:15] cpu 50 % pods Running=2"


def test_a_full_disk_is_on_the_screen_as_long_as_it_lasts() -> None:
    full = view(warning="LOG is full: it takes 95.0 MiB of 100.0 MiB; creations are refused")
    assert "FULL   LOG is full: it takes 95.0 MiB of 100.0 MiB" in status_lines(full)
    assert plain_line(full).endswith(" FULL")
    assert not any(line.startswith("FULL") for line in status_lines(view()))


def test_the_servers_configuration_states_its_limits() -> None:
    text = configuration(ServerMember("nats-server", 4222), Path('/a "b"/store'), 1 << 30)
    assert 'store_dir: "/a \\"b\\"/store"' in text
    assert "sync_interval: always" in text
    assert "max_msgs: 8000" in text
    assert 'listen: "127.0.0.1:4222"' in text
    assert "cluster" not in text


def test_a_server_of_three_knows_its_routes() -> None:
    member = ServerMember("nats-server-2", 4223, cluster_port=7002, routes=(7001, 7003))
    text = configuration(member, Path("/store"), 1 << 30)
    assert "server_name: nats-server-2" in text
    assert 'listen: "127.0.0.1:7002"' in text
    assert 'routes: ["nats://127.0.0.1:7001", "nats://127.0.0.1:7003"]' in text


def test_a_data_folder_keeps_the_number_of_its_servers(tmp_path: Path) -> None:
    assert replicas_in(tmp_path) == 1
    assert replicas_in(tmp_path, 3) == 3
    for number in (1, 2, 3):
        (tmp_path / f"nats-{number}" / "store").mkdir(parents=True)
    assert replicas_in(tmp_path) == replicas_in(tmp_path, 3) == 3
    with pytest.raises(ReplicasDifferError, match="holds the log of 3 servers, not of 1"):
        replicas_in(tmp_path, 1)


def test_the_configuration_that_is_shipped_says_the_same() -> None:
    """But for addresses, paths and what a workstation bounds besides."""
    shipped = (Path(__file__).parents[3] / "deploy/nats.conf").read_text()
    written = configuration(ServerMember("nats-server", 4222, monitor_port=8222), Path("/data/jetstream"), 1 << 30)
    for setting in ("server_name", "listen", "http", "store_dir", "sync_interval", "batch"):
        found = [re.findall(rf"^\s*{setting}:? (.+)$", text, re.MULTILINE) for text in (shipped, written)]
        assert len(found[0]) == 1, setting
        assert found[0] == found[1], setting
    assert "max_payload: 2MB\n" in shipped
    assert f"max_payload: {2 << 20}\n" in written
    sizes = DEFAULT_SIZES
    streams = sizes.log + EXTENSIONS * extension_bytes(sizes.log) + sizes.history + sizes.execution
    (gigabytes,) = re.findall(r"max_file_store: (\d+)GB", shipped)
    assert streams < int(gigabytes) << 30
