"""What a person does with a running stack: look, apply, raise the load, kill things, give it rubbish, verify."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.log.nats.access import Access
from cotenant.log.nats.log import connect
from cotenant_console.nats_access.finding import access_of
from cotenant_console.nats_access.roles import ADMINISTRATOR
from tests.e2e.manifests import batch_pod, service_pod, simulated_pod
from tests.e2e.stack import BIN, WAIT_SECONDS, Stack, wait_for
from tests.other_processes import NotInTimeError

SERVICES = (
    "gateway",
    "metrics-ingest",
    "batch-resource-calculator",
    "quota-tree",
    "scheduler",
    "descheduler-arbiter",
    "yarn-copilot",
    "node-executor",
)
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    running = Stack("--nodes", "2")
    try:
        running.until_ready()
        lend_generously(running)
        yield running
    finally:
        running.close()


def lend_generously(stack: Stack) -> None:
    """Lend three times what the node has, and place pods there however busy it is: what else this machine does is not ours."""
    name = ("slo-controller-config", "-n", "koordinator-system")
    config = json.loads(stack.run("get", "configmap", *name, "-o", "json"))
    colocation = json.loads(config["data"]["colocation-config"]) | {"cpuReclaimThresholdPercent": 300}
    config["data"]["colocation-config"] = json.dumps(colocation)
    config["metadata"] = {key: config["metadata"][key] for key in ("name", "namespace", "labels")}
    stack.apply({key: config[key] for key in ("apiVersion", "kind", "metadata", "data")})
    unchecked = {"scheduling.koordinator.sh/usage-thresholds": json.dumps({"usageThresholds": {"cpu": 0}})}
    stack.patch(f"api/v1/nodes/{host_of(stack)}", {"metadata": {"annotations": unchecked}})


def idle_cpus(seconds: float = 3.0) -> float:
    """How many CPUs of this machine nobody used during the next few seconds."""

    def looked() -> tuple[float, float]:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        return time.monotonic(), (int(words[3]) + int(words[4])) / os.sysconf("SC_CLK_TCK")

    began, idle = looked()
    time.sleep(seconds)
    ended, later = looked()
    return (later - idle) / (ended - began)


def host_of(stack: Stack) -> str:
    """Return the real node's name."""
    return stack.host()


def quota_file(stack: Stack) -> Path:
    """Return the kernel's file with the CPU quota of all best-effort pods of this node."""
    host = host_of(stack)
    found = [
        *Path("/sys/fs/cgroup").glob(f"cpu*/cotenant/{host}/besteffort/cpu.cfs_quota_us"),
        *Path("/sys/fs/cgroup").glob(f"**/cotenant/{host}/besteffort/cpu.max"),
    ]
    if not found:
        pytest.skip("no cgroups here: the stack works in a sandboxed tree")
    return found[0]


def having(words: str, text: str) -> str:
    """Return the text if it has the words in it, else nothing."""
    return text if words in text else ""


def quota(path: Path) -> int:
    word = path.read_text().split()[0]
    return -1 if word == "max" else int(word)


def test_the_tables_look_like_kubectls(stack: Stack) -> None:
    host = host_of(stack)
    wait_for("all nodes", lambda: len(stack.items("api/v1/nodes")) == 3)
    nodes = stack.run("get", "nodes", "-o", "wide")
    assert nodes.splitlines()[0].split()[:4] == ["NAME", "STATUS", "ROLES", "AGE"]
    assert host in nodes
    assert "simulated-0" in nodes
    for words in ("get pods -A", "get elasticquotas -A", "get podmigrationjobs", f"describe node {host}"):
        stack.run(*words.split())
    wait_for("metrics of all nodes", lambda: len(stack.items("apis/slo.koordinator.sh/v1alpha1/nodemetrics")) == 3)
    assert host in stack.run("top", "nodes")


def test_a_pod_of_any_image_runs_on_a_simulated_node_and_ends_when_deleted(stack: Stack) -> None:
    assert "created" in stack.apply(simulated_pod("anything"))
    wait_for("anything to run", lambda: stack.runs("anything"))
    pod = stack.pod("anything")
    assert pod is not None
    assert pod["spec"]["nodeName"].startswith("simulated-")
    assert "unchanged" in stack.apply(simulated_pod("anything"))
    assert "Running" in stack.run("get", "pods", "anything")
    explained = stack.run("explain", "pod", "anything")
    assert "placed on simulated-" in explained
    assert "LOG:" in explained
    stack.run("delete", "pod", "anything")
    assert stack.pod("anything") is None


def test_a_batch_pod_runs_in_its_own_cgroup_and_says_its_lines(stack: Stack) -> None:
    stack.apply(batch_pod("worker", "echo hello from batch; exec sleep 300"))
    wait_for("worker to run", lambda: stack.runs("worker"))
    pod = stack.pod("worker")
    assert pod is not None
    assert pod["spec"]["nodeName"] == host_of(stack)
    groups = quota_file(stack).parent / f"pod{pod['metadata']['uid']}"
    assert (groups / "main" / "cgroup.procs").read_text().split()
    wait_for("its lines", lambda: "hello from batch" in stack.run("logs", "worker"))
    chain = stack.run("explain", "pod", "worker")
    assert "offers batch-cpu" in chain
    stack.run("delete", "pod", "worker")
    wait_for("its group to go", lambda: not groups.exists())


def test_a_pod_that_fits_nowhere_says_why(stack: Stack) -> None:
    stack.apply(batch_pod("huge", cpu=900_000))
    text = wait_for("a reason", lambda: having("short by", stack.run("explain", "pod", "huge")))
    assert "0/3 nodes" in text
    stack.run("delete", "pod", "huge")


def test_services_that_need_their_cpu_get_it_back_and_the_loan_grows_again(stack: Stack) -> None:
    path = quota_file(stack)
    try:
        wait_for("a CPU that nobody uses", lambda: idle_cpus() > 1.0, 120)
    except NotInTimeError:
        pytest.skip("other processes use this machine's CPUs: it has nothing to lend, and so nothing to take back")
    stack.apply(batch_pod("burner"))
    wait_for("burner to run", lambda: stack.runs("burner"))
    wait_for("a loan of some size", lambda: quota(path) >= 60_000)
    lent = quota(path)
    # A loop for each CPU: with fewer, what is left to lend depends on how many the machine has.
    loops = "while :; do :; done & " * (os.cpu_count() or 1)
    stack.apply(service_pod("spike", f"{loops}wait"))
    wait_for("the loan to shrink in the kernel's file", lambda: 0 < quota(path) <= lent // 2)
    low = quota(path)
    told = wait_for(
        "an event that says so",
        lambda: [line for line in stack.run("events").splitlines() if "EXECUTION" in line and path.name in line],
        10,
    )
    assert "->" in told[-1]
    stack.run("delete", "pod", "spike")
    wait_for("the loan to grow back", lambda: quota(path) > low * 2 or quota(path) == -1)
    stack.run("delete", "pod", "burner")


@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_service_comes_back_and_nothing_is_lost_or_doubled(stack: Stack, service: str) -> None:
    before = {pod["metadata"]["uid"] for pod in stack.pods()}
    names = [f"{service}-{number}" for number in range(6)]
    stack.apply(*(simulated_pod(name) for name in names[:3]))
    killed = wait_for(f"{service}'s process", lambda: stack.pid(service))
    os.kill(killed, signal.SIGKILL)
    wait_for(f"{service} to come back", lambda: (again := stack.pid(service)) and again != killed)

    def applied() -> bool:
        done = subprocess.run(
            [BIN / "cotenant", "apply", "-f", "-"],
            input="\n---\n".join(json.dumps(simulated_pod(name)) for name in names[3:]),
            capture_output=True,
            text=True,
            env=stack.environment,
            timeout=WAIT_SECONDS,
            check=False,
        )
        return done.returncode == 0

    wait_for("the API", applied)

    def running() -> bool:
        pods = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in stack.pods()}
        return all(pods.get(name) == "Running" for name in names)

    wait_for("all six to run", running)
    pods = stack.pods()
    uids = [pod["metadata"]["uid"] for pod in pods]
    assert len(uids) == len(set(uids))
    assert before <= set(uids)
    stack.run("delete", "pod", *names)
    assert not [pod for pod in stack.pods() if pod["metadata"]["name"] in names]


def test_a_killed_server_comes_back_with_everything(stack: Stack) -> None:
    stack.apply(simulated_pod("survivor"))
    wait_for("survivor to run", lambda: stack.runs("survivor"))
    uid = (stack.pod("survivor") or {})["metadata"]["uid"]
    killed = wait_for("the server's process", lambda: stack.pid("nats-server"))
    os.kill(killed, signal.SIGKILL)
    found = wait_for("survivor again", lambda: stack.pod("survivor"))
    assert found["metadata"]["uid"] == uid

    def deleted() -> bool:
        stack.run("delete", "pod", "survivor", status=None)
        return stack.pod("survivor") is None and stack.get("api/v1/pods") is not None

    wait_for("survivor to be deleted", deleted)
    stack.apply(simulated_pod("newcomer"))
    wait_for("newcomer to run", lambda: stack.runs("newcomer"))
    stack.run("delete", "pod", "newcomer")


def test_a_running_process_survives_its_executor(stack: Stack) -> None:
    stack.apply(batch_pod("long", "exec sleep 600"))
    wait_for("long to run", lambda: stack.runs("long"))
    pod = stack.pod("long")
    assert pod is not None
    procs = quota_file(stack).parent / f"pod{pod['metadata']['uid']}" / "main" / "cgroup.procs"
    before = set(procs.read_text().split())
    killed = wait_for("the executor's process", lambda: stack.pid("node-executor"))
    os.kill(killed, signal.SIGKILL)
    wait_for("the executor to come back", lambda: (again := stack.pid("node-executor")) and again != killed)
    assert set(procs.read_text().split()) & before, "the pod's process went on"
    stack.run("delete", "pod", "long")
    wait_for("its group to go", lambda: not procs.exists())


def test_a_second_scheduler_does_no_harm_and_events_say_which_one_decides(stack: Stack) -> None:
    began = wait_for("the log's end", lambda: stack.get("apis/cotenant.io/v1/status"))["log"]["lastSequence"]
    first = wait_for("the first's process", lambda: stack.pid("scheduler"))
    access = nats_access(stack, "scheduler")
    flags = ["--nats", stack.endpoint["nats"], "--nats-creds", str(access.credentials), "--nats-ca", str(access.ca)]
    flags += ["--replica", "second", "--http-port", "-1"]
    second = subprocess.Popen(
        [sys.executable, "-m", "cotenant_scheduler", *flags],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def twins_come_and_go() -> None:
        names = [f"twin-{number}" for number in range(20)]
        stack.apply(*(simulated_pod(name) for name in names))
        wait_for(
            "the twins to run",
            lambda: sum(pod["status"].get("phase") == "Running" for pod in stack.pods()) >= 20,
        )
        uids = [pod["metadata"]["uid"] for pod in stack.pods()]
        assert len(uids) == len(set(uids))
        stack.run("delete", "pod", *names)

    def deciding() -> str:
        printed = stack.run("events", "--all", "--since", str(began))
        replicas: list[str] = re.findall(r"scheduler \(replica ([^)]+)\) decide", printed)
        return ["", *replicas][-1]

    try:
        wait_for("the second's start", lambda: "replica second" in stack.run("events", "--since", str(began)))
        twins_come_and_go()
        os.kill(first, signal.SIGSTOP)
        try:
            twins_come_and_go()
        finally:
            os.kill(first, signal.SIGCONT)
        assert deciding() == "second"
        twins_come_and_go()
    finally:
        second.terminate()
        second.wait(WAIT_SECONDS)
    twins_come_and_go()
    assert stack.pid("scheduler") == first
    assert deciding() not in ("second", "")


RUBBISH: list[tuple[str, dict[str, Any], str]] = [
    ("unknown kind", {"apiVersion": "v1", "kind": "Wombat", "metadata": {"name": "x"}}, "Wombat"),
    (
        "wrong types",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": "no"}},
        "spec.containers",
    ),
    ("bad name", {**simulated_pod("X_y")}, "metadata.name"),
    (
        "negative quantity",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x"},
            "spec": {"containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "-1"}}}]},
        },
        "requests[cpu]",
    ),
    (
        "malformed quantity",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x"},
            "spec": {"containers": [{"name": "a", "image": "i", "resources": {"requests": {"memory": "1Q"}}}]},
        },
        "requests[memory]",
    ),
    (
        "a mis-spelled member of a Reservation",
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": "x"},
            "spec": {"template": {}, "owners": [{}], "allocateOnc": True},
        },
        'strict decoding error: unknown field "spec.allocateOnc"',
    ),
    ("batch QoS with prod priority", {**batch_pod("x", priorityClassName="koord-prod")}, "BE"),
    (
        "requests unequal to limits",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x"},
            "spec": {
                "containers": [
                    {
                        "name": "a",
                        "image": "i",
                        "resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}},
                    }
                ],
            },
        },
        "nvidia.com/gpu",
    ),
]


@pytest.mark.parametrize(("what", "manifest", "told"), RUBBISH, ids=[entry[0] for entry in RUBBISH])
def test_rubbish_is_refused_with_what_is_wrong_and_where(stack: Stack, what: str, manifest: dict[str, Any], told: str) -> None:
    assert told in stack.run("apply", "-f", "-", given=json.dumps(manifest), status=1)
    assert stack.pod("x") is None


def test_a_quota_whose_min_exceeds_its_parents_is_refused(stack: Stack) -> None:
    def elastic(name: str, least: str, **labels: str) -> dict[str, Any]:
        prefix = "quota.scheduling.koordinator.sh/"
        return {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": name, "labels": {prefix + key.replace("_", "-"): value for key, value in labels.items()}},
            "spec": {"min": {"cpu": least}, "max": {"cpu": "100"}},
        }

    stack.apply(elastic("family", "10", is_parent="true"))
    text = stack.run("apply", "-f", "-", given=json.dumps(elastic("greedy", "11", parent="family")), status=1)
    assert "min" in text
    assert "family" in text
    stack.run("delete", "elasticquota", "family")


def post(stack: Stack, body: bytes) -> tuple[int, dict[str, Any]]:
    try:
        pods = "api/v1/namespaces/default/pods"
        status, answer = stack.ask("POST", pods, body, {"Content-Type": "application/json"})
        return status, json.loads(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_broken_bodies_get_a_status(stack: Stack) -> None:
    code, status = post(stack, b'{"apiVersion":"v1","kind":"Pod",')
    assert (code, status["kind"], status["reason"]) == (400, "Status", "BadRequest")
    code, status = post(stack, b"a" * 10_000_000)
    assert (code, status["kind"]) == (413, "Status")
    assert status["message"]


def nats_access(stack: Stack, user: str) -> Access:
    """What a user of the stack's cell comes with to NATS."""
    return access_of(stack.folder, user, stack.endpoint["nats"])


def nats_say(stack: Stack, subject: str, payload: bytes) -> None:
    """Publish as an administrator can: anything."""

    async def say() -> None:
        log = await connect(stack.endpoint["nats"], "test", nats_access(stack, ADMINISTRATOR))
        await log.client.request(subject, payload, timeout=WAIT_SECONDS)
        await log.close()

    asyncio.run(say())


def state_of(stack: Stack, subject: str) -> set[str]:
    """The states of a subject's dead letters."""
    listed = json.loads(stack.run("get", "deadletters", "-o", "json"))
    return {item["state"] for item in listed["items"] if item["subject"] == subject}


def test_rubbish_on_the_log_is_put_aside_and_stops_nobody(stack: Stack) -> None:
    host = host_of(stack)
    nats_say(stack, f"metrics.{host}", b"this is not JSON")
    unknown = b'{"specversion":"1.0","id":"x","source":"/x","type":"com.example.unknown","data":{}}'
    nats_say(stack, f"node.{host}.resources", unknown)
    backwards = {
        "specversion": "1.0",
        "id": "x",
        "source": "/x",
        "type": "cotenant.usage.v1",
        "time": "1999-01-01T00:00:00Z",
        "data": {"node": host, "offsetsMs": [0], "nodeUsage": {"cpuMilli": [1], "memoryBytes": [1]}},
    }
    nats_say(stack, f"usage.{host}", json.dumps(backwards).encode())
    wait_for("a dead letter", lambda: "not a CloudEvent" in stack.run("events"))
    headings, *rows = stack.run("get", "deadletters").splitlines()
    assert headings.split() == ["SERVICE", "MESSAGE", "SUBJECT", "STATE", "AGE", "REASON"]
    of_subject = [row for row in rows if f" metrics.{host} " in row]
    assert any("not a CloudEvent" in row for row in of_subject)
    listed = json.loads(stack.run("get", "deadletters", "-o", "json"))
    letter = next(item for item in listed["items"] if item["subject"] == f"metrics.{host}")
    assert (letter["stream"], letter["message"]) == ("LOG", "this is not JSON")
    wait_for("a newer metric", lambda: "Held" not in state_of(stack, f"metrics.{host}"))
    stack.apply(simulated_pod("after-rubbish"))
    wait_for("a pod after the rubbish", lambda: stack.runs("after-rubbish"))
    stack.run("delete", "pod", "after-rubbish")


def test_every_decision_on_the_log_can_be_computed_again(stack: Stack) -> None:
    stack.apply(*(simulated_pod(f"verified-{number}") for number in range(5)))
    wait_for("verified-0 to run", lambda: stack.runs("verified-0"))
    stack.run("delete", "pod", *(f"verified-{number}" for number in range(5)))
    text = stack.run("replay", "--verify")
    assert "scheduler" in text


def test_ctrl_c_leaves_nothing_behind() -> None:
    running = Stack("--nodes", "1", "--demo")
    running.until_ready()
    host = host_of(running)
    pids = [running.pid(service) for service in (*SERVICES, "nats-server")]
    assert all(pids)
    status = running.end()
    screen = running.screen.read_text()
    assert status == 0, screen
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not list(Path("/sys/fs/cgroup").glob(f"*/cotenant/{host}"))
    assert not list(Path("/sys/fs/cgroup").glob(f"cotenant/{host}"))
    running.close()
