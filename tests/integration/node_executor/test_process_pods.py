"""Pods as real processes: started, ended, restarted, adopted, read."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest

from cotenant.events.node.runs import ContainerRun, ExecutorStatus, RunPhase
from cotenant_node_executor.runtime.users import USERS
from tests.integration.node_executor.executor_harness import WAIT_SECONDS, Harness, alive, pod_manifest


def proc(pid: int, name: str) -> bytes:
    """One file of a process."""
    return Path(f"/proc/{pid}/{name}").read_bytes()


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")

SLEEP = "import time; time.sleep(600)"


async def test_a_pod_that_ends_with_zero_succeeds_and_its_log_can_be_read(harness: Harness) -> None:
    harness.start()
    await harness.place(pod_manifest("hello", "print('one'); print('two'); print('three')"))
    run = await harness.ended("hello")
    assert run.phase is RunPhase.SUCCEEDED
    assert run.containers[0].exit_code == 0
    assert await harness.logs("hello") == "one\ntwo\nthree\n"
    assert await harness.logs("hello", tail_lines=1) == "three\n"
    with pytest.raises(LookupError, match="not on node"):
        await harness.logs("nobody")


async def test_exit_codes_signals_and_missing_programs_are_told_apart(harness: Harness) -> None:
    harness.start()
    await harness.place(pod_manifest("three", "raise SystemExit(3)"))
    await harness.place(pod_manifest("killed", "import os; os.kill(os.getpid(), 9)"))
    await harness.place(pod_manifest("absent", "", container={"command": ["/no/such/program"]}))
    three, killed, absent = [await harness.ended(name) for name in ("three", "killed", "absent")]
    assert [run.phase for run in (three, killed, absent)] == [RunPhase.FAILED] * 3
    assert [run.containers[0].exit_code for run in (three, killed, absent)] == [3, 137, 127]
    assert absent.containers[0].reason == "StartError"
    assert "no such program" in absent.containers[0].message


async def test_a_process_runs_as_a_user_of_its_own_without_privileges_in_its_own_group(harness: Harness) -> None:
    harness.start()
    uid = await harness.place(pod_manifest("plain", SLEEP, container={"env": [{"name": "A", "value": "x$(B)"}]}))
    container = await harness.running("plain")
    # It counts as running from the moment on at which it has entered its group; its program takes over a little later.
    await harness.wait("its program runs", lambda: SLEEP.encode() in proc(container.pid, "cmdline"))
    status = proc(container.pid, "status").decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    (user,) = set(fields["Uid"].split())
    assert int(user) in USERS
    assert set(fields["Gid"].split()) == {user}
    assert fields["Groups"].strip() == ""
    assert fields["NoNewPrivs"] == "1"
    assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert f"/besteffort/pod{uid}/main" in proc(container.pid, "cgroup").decode()
    assert proc(container.pid, "oom_score_adj").split() == [b"1000"], "best-effort work is ended first"
    environment = proc(container.pid, "environ").split(b"\0")
    assert b"A=x$(B)" in environment
    assert not [entry for entry in environment if entry.startswith(b"COTENANT")]


LOOK = (
    "import os, pathlib, resource, time\n"
    "for folder in ('/tmp', '/var/tmp', '/dev/shm'):\n"
    "    print(folder, os.listdir(folder)); pathlib.Path(folder, 'secret').write_text('x')\n"
    "print(os.getuid(), resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= 65536)\n"
    "open('/dev/stdout', 'a').write('again')\n"
)
REACH = (
    "import os, pathlib\n"
    "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
    "    try:\n"
    "        if b'PEER' in pathlib.Path('/proc', pid, 'environ').read_bytes(): print('read', pid)\n"
    "    except OSError: pass\n"
    "    try:\n"
    "        if int(pid) not in (1, os.getpid()): os.kill(int(pid), 0); print('signalled', pid)\n"
    "    except OSError: pass\n"
)


async def test_pods_see_nothing_of_one_another(harness: Harness) -> None:
    harness.start()
    secret = {"env": [{"name": "PEER", "value": "secret"}]}
    await harness.place(pod_manifest("first", LOOK + "time.sleep(600)", container=secret))
    await harness.running("first")
    await wait_for_log(harness, "first", "again")
    uid = await harness.place(pod_manifest("second", LOOK + REACH))
    assert (await harness.ended("second")).phase is RunPhase.SUCCEEDED
    first, second = await harness.logs("first"), await harness.logs("second")
    for said in (first, second):
        assert said.startswith("/tmp []\n/var/tmp []\n/dev/shm []\n")
        assert "(0, 0) True" in said
    assert "read" not in second
    assert "signalled" not in second
    assert first.splitlines()[3].split()[0] != second.splitlines()[3].split()[0], "each has a user of its own"
    assert open_to_others(harness.folder / "data/pods", uid) == []


def open_to_others(folder: Path, uid: str) -> list[Path]:
    """Those of the pods' folder, and of a pod's documents and logs, that others than their owners may read."""
    assert not Path("/tmp/secret").exists()
    return [path for path in (folder, *(folder / uid / "main").glob("*.l*")) if path.stat().st_mode & 0o077]


def limits(uid: str) -> set[str]:
    return {path.read_text().strip() for path in Path("/sys/fs/cgroup").glob(f"**/pod{uid}/pids.max")}


async def test_a_pod_cannot_fill_the_node_with_processes(harness: Harness) -> None:
    harness.start()
    uid = await harness.place(pod_manifest("many", SLEEP))
    await harness.running("many")
    assert limits(uid) == {"4096"}


async def test_root_is_for_nodes_that_allow_it_and_has_no_capability_there(harness: Harness) -> None:
    harness.start()
    root = {"securityContext": {"runAsUser": 0}}
    await harness.place(pod_manifest("refused", SLEEP, **root))
    run = await harness.ended("refused")
    assert (run.phase, run.reason) == (RunPhase.FAILED, "UnsupportedPod")
    assert "--allow-root-pods" in run.message
    harness.kill()
    harness.start("--allow-root-pods")
    show = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')])"
    await harness.place(pod_manifest("root", show, **root))
    assert (await harness.ended("root")).phase is RunPhase.SUCCEEDED
    assert set((await harness.logs("root")).strip("[]\n").replace("'", "").split(", ")) == {"0" * 16}


async def test_a_program_ends_itself_on_sigterm_and_its_exit_code_is_reported(harness: Harness) -> None:
    harness.start()
    polite = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('ready'); time.sleep(600)"
    uid = await harness.place(pod_manifest("polite", polite))
    await harness.running("polite")
    await wait_for_log(harness, "polite", "ready")
    await harness.end("polite")
    run = await harness.ended("polite")
    assert (run.phase, run.containers[0].exit_code) == (RunPhase.STOPPED, 7)
    assert harness.run_has_ended("polite")
    await harness.forget("polite")
    await harness.wait("its folder is gone", lambda: not (harness.folder / "data/pods" / uid).exists())


async def test_a_program_that_ignores_sigterm_is_killed_after_its_grace_period(harness: Harness) -> None:
    harness.start()
    stubborn = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN)\n"
        "if os.fork() == 0: time.sleep(600)\nprint('ready'); time.sleep(600)"
    )
    await harness.place(pod_manifest("stubborn", stubborn, terminationGracePeriodSeconds=1))
    container = await harness.running("stubborn")
    await wait_for_log(harness, "stubborn", "ready")
    await harness.end("stubborn")
    run = await harness.ended("stubborn")
    assert (run.phase, run.containers[0].exit_code) == (RunPhase.STOPPED, 137)
    assert not alive(container.pid)


async def test_a_crashing_container_restarts_at_once_and_then_waits(harness: Harness) -> None:
    harness.start()
    await harness.place(pod_manifest("crash", "raise SystemExit(1)", restartPolicy="OnFailure"))

    def backing_off() -> ContainerRun | None:
        seen = [container for run in harness.reports("crash") for container in run.containers]
        return next((c for c in seen if c.reason == "CrashLoopBackOff" and c.restarts == 1), None)

    container = await harness.wait("it waits after its second attempt", backing_off)
    assert (container.state, container.exit_code, container.backoff_seconds) == ("waiting", 1, 10)
    assert await harness.logs("crash", previous=True) == ""


async def test_a_killed_executor_leaves_its_pods_alone_and_adopts_them_again(harness: Harness) -> None:
    harness.start()
    uid = await harness.place(pod_manifest("stays", SLEEP))
    await harness.place(pod_manifest("ends-meanwhile", SLEEP))
    before = await harness.running("stays")
    meanwhile = await harness.running("ends-meanwhile")
    harness.kill()
    os.kill(meanwhile.pid, 15)
    harness.start()
    run = await harness.ended("ends-meanwhile")
    assert (run.phase, run.containers[0].exit_code) == (RunPhase.FAILED, 143)
    statuses = [event.data for event in harness.facts if isinstance(event.data, ExecutorStatus)]
    assert (uid in statuses[0].adopted, uid in statuses[-1].adopted) == (False, True)
    assert harness.container("stays") == before
    assert alive(before.pid)


async def test_a_pod_whose_placement_went_while_the_executor_was_down_is_ended(harness: Harness) -> None:
    harness.start()
    await harness.place(pod_manifest("orphan", SLEEP))
    container = await harness.running("orphan")
    harness.kill()
    await harness.forget("orphan")
    harness.start()
    await harness.wait("its report is gone", lambda: "orphan" not in harness.runs)
    await harness.wait("its process is gone", lambda: not alive(container.pid))


async def test_a_clean_stop_with_remove_on_exit_leaves_nothing_behind(harness: Harness) -> None:
    harness.start("--remove-on-exit")
    await harness.place(pod_manifest("short", SLEEP))
    container = await harness.running("short")
    assert harness.subtree_exists()
    assert harness.stop() == 0
    assert not alive(container.pid)
    assert not harness.subtree_exists()


async def test_a_container_named_like_a_kernel_file_fails_to_start_and_others_do_not_suffer(harness: Harness) -> None:
    harness.start()
    await harness.place(pod_manifest("odd", SLEEP, container={"name": "tasks"}))
    await harness.place(pod_manifest("plain", "print('fine')"))
    odd, plain = await harness.ended("odd"), await harness.ended("plain")
    assert (odd.phase, plain.phase) == (RunPhase.FAILED, RunPhase.SUCCEEDED)
    assert odd.containers[0].reason == "StartError"
    assert "control group" in odd.containers[0].message


async def test_a_second_executor_for_the_same_subtree_is_refused_and_does_no_harm(harness: Harness) -> None:
    harness.start()
    await harness.place(pod_manifest("stays", SLEEP))
    container = await harness.running("stays")
    code, said = await asyncio.to_thread(harness.second_executor)
    assert code != 0
    assert "belongs to another running executor" in said
    assert alive(container.pid)


async def wait_for_log(harness: Harness, name: str, text: str) -> None:
    """Usage messages come every second, so the facts change often enough to look again."""
    async with asyncio.timeout(WAIT_SECONDS):
        while text not in await harness.logs(name):
            count = len(harness.facts)
            await harness.wait("another fact", partial(_has_more, harness, count))


def _has_more(harness: Harness, than: int) -> bool:
    return len(harness.facts) > than
