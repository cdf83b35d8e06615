"""A real ResourceManager and a real NodeManager as two plain JVMs on loopback, without root and without native code.

The jars come from Maven once and are kept in `build/yarn`; COTENANT_HADOOP_LIB names a folder that has them already.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import msgspec

from tests.nats_server import free_port

VERSION = "3.3.6"
ROOT = Path(__file__).resolve().parents[2]
POM = Path(__file__).parent / "hadoop" / "pom.xml"
LIB = ROOT / "build" / "yarn" / f"hadoop-{VERSION}" / "lib"
COMPLETE = LIB.parent / "complete"
RESOURCE_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
DOMINANT_RESOURCES = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
"""The scheduler's default counts every container as one vcore."""
JAVA_FLAGS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens", "java.base/java.lang=ALL-UNNAMED")
FETCH_TRIES = 3
WAIT_SECONDS = 240
"""Long enough for two JVMs on a crowded machine; nobody waits for it where all is well."""
ANNOUNCED_MB = 2048
ANNOUNCED_VCORES = 4


class HadoopMissingError(RuntimeError):
    """Something that a real Hadoop needs is not on this machine; the message says what, and what to do."""


def hadoop_jars() -> Path:
    """Return the folder with Hadoop's jars, fetching them once. Raises HadoopMissingError."""
    if shutil.which("java") is None:
        raise HadoopMissingError("java is not installed: Hadoop needs a Java runtime, version 17 (openjdk-17-jre-headless)")
    given = os.environ.get("COTENANT_HADOOP_LIB")
    if given:
        return Path(given)
    if COMPLETE.exists():
        return LIB
    if shutil.which("mvn") is None:
        raise HadoopMissingError(
            f"mvn is not installed: Maven fetches Hadoop {VERSION} once (about 75 MB), or set COTENANT_HADOOP_LIB"
        )
    LIB.mkdir(parents=True, exist_ok=True)
    flags = ("-DincludeScope=runtime", f"-DoutputDirectory={LIB}")
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", *flags]
    for _ in range(FETCH_TRIES):
        fetched = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1200, check=False)
        if fetched.returncode == 0:
            COMPLETE.touch()
            return LIB
    raise HadoopMissingError(f"Maven could not fetch Hadoop {VERSION}: {fetched.stdout.decode(errors='replace')[-800:]}")


class HadoopCluster:
    """One ResourceManager and one NodeManager with ports of their own."""

    def __init__(self, jars: Path) -> None:
        self._jars = jars
        self.folder = Path(tempfile.mkdtemp(prefix="cotenant-yarn-"))
        names = ("scheduler", "tracker", "client", "admin", "web", "nm", "localizer", "nm_web")
        self._ports = {name: free_port() for name in names}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._write_configuration()

    @property
    def url(self) -> str:
        """Base URL of the ResourceManager."""
        return f"http://localhost:{self._ports['web']}"

    @property
    def node_id(self) -> str:
        """YARN's id of the NodeManager."""
        return f"localhost:{self._ports['nm']}"

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start both and wait until the ResourceManager is active and lists the NodeManager as running."""
        self._start("rm", RESOURCE_MANAGER)
        self._start("nm", NODE_MANAGER)
        self.wait_for(lambda: self.get("/info")["clusterInfo"]["haState"] == "ACTIVE", "the ResourceManager is ACTIVE")
        self.wait_for(lambda: self.node()["state"] == "RUNNING", "the NodeManager is RUNNING")

    def restart_node_manager(self) -> int:
        """Kill the NodeManager and start it again; returns when it was dead, in the ResourceManager's milliseconds."""
        self._kill("nm")
        dead = int(time.time() * 1000)
        self._start("nm", NODE_MANAGER)
        return dead

    def close(self) -> None:
        """End everything that was started, containers included."""
        self._kill("nm")
        for pid_file in self.folder.glob("nm-local/nmPrivate/*/*/*.pid"):
            _kill_group(int(pid_file.read_text().strip()))
        self._kill("rm")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name: str, main_class: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["java", *JAVA_FLAGS, "-cp", f"{self.folder}/conf:{self._jars}/*", main_class],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    # -- talking to it -------------------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        """GET below /ws/v1/cluster."""
        return self._call(path, None)

    def node(self) -> Any:
        """The NodeManager as the ResourceManager lists it."""
        return self.get(f"/nodes/{self.node_id}")["node"]

    def total(self) -> tuple[int, int]:
        """vcores and MB that the ResourceManager may allocate on the node."""
        resource = self.node()["totalResource"]
        return resource["vCores"], resource["memory"]

    def node_manager(self) -> Any:
        """What the NodeManager says of itself; its totals are those that the ResourceManager's last heartbeat brought."""
        with urlopen(f"http://localhost:{self._ports['nm_web']}/ws/v1/node/info", timeout=WAIT_SECONDS) as answer:
            return msgspec.json.decode(answer.read())["nodeInfo"]

    def submit(self, memory_mb: int, vcores: int) -> str:
        """Start an application whose one container sleeps; returns its id."""
        application = self._call("/apps/new-application", {})["application-id"]
        self._call(
            "/apps",
            {
                "application-id": application,
                "application-name": "hold",
                "max-app-attempts": 1,
                "resource": {"memory": memory_mb, "vCores": vcores},
                "am-container-spec": {"commands": {"command": "exec sleep 3600"}},
            },
        )
        return str(application)

    def kill(self, application: str) -> None:
        """End an application."""
        self._call(f"/apps/{application}/state", {"state": "KILLED"}, method="PUT")

    def _call(self, path: str, body: object | None, *, method: str = "") -> Any:
        request = Request(
            f"{self.url}/ws/v1/cluster{path}",
            data=None if body is None else msgspec.json.encode(body),
            headers={"Accept": "application/json", "Content-Type": "application/json"},
            method=method or ("GET" if body is None else "POST"),
        )
        with urlopen(request, timeout=WAIT_SECONDS) as answer:
            content = answer.read()
        return msgspec.json.decode(content) if content else None

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Poll until the condition holds; names it, and the logs' ends, where it does not in time."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise AssertionError(f"{name} ended with {process.returncode}: {self._log_end(name)}")
            try:
                if condition():
                    return
            except (HTTPError, URLError, OSError, KeyError, TypeError):
                pass
            time.sleep(0.2)
        raise AssertionError(f"not within {WAIT_SECONDS} s: {what}; rm: {self._log_end('rm')}; nm: {self._log_end('nm')}")

    def _log_end(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-1500:] if path.exists() else ""

    # -- configuration -------------------------------------------------------------------------------------------

    def _write_configuration(self) -> None:
        conf = self.folder / "conf"
        conf.mkdir()
        ports = self._ports
        rm, nm = "yarn.resourcemanager", "yarn.nodemanager"
        _write_xml(conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.folder / "tmp")})
        _write_xml(
            conf / "capacity-scheduler.xml",
            {
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": "100",
                "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
                "yarn.scheduler.capacity.resource-calculator": DOMINANT_RESOURCES,
            },
        )
        _write_xml(
            conf / "yarn-site.xml",
            {
                f"{rm}.hostname": "localhost",
                f"{rm}.bind-host": "127.0.0.1",
                f"{rm}.scheduler.address": f"localhost:{ports['scheduler']}",
                f"{rm}.resource-tracker.address": f"localhost:{ports['tracker']}",
                f"{rm}.address": f"localhost:{ports['client']}",
                f"{rm}.admin.address": f"localhost:{ports['admin']}",
                f"{rm}.webapp.address": f"localhost:{ports['web']}",
                f"{rm}.connect.retry-interval.ms": "500",
                f"{rm}.nm.liveness-monitor.interval-ms": "1000",
                "yarn.nm.liveness-monitor.expiry-interval-ms": "120000",
                "yarn.scheduler.minimum-allocation-mb": "128",
                f"{nm}.hostname": "localhost",
                f"{nm}.bind-host": "127.0.0.1",
                f"{nm}.address": f"localhost:{ports['nm']}",
                f"{nm}.localizer.address": f"localhost:{ports['localizer']}",
                f"{nm}.webapp.address": f"localhost:{ports['nm_web']}",
                f"{nm}.resource.memory-mb": str(ANNOUNCED_MB),
                f"{nm}.resource.cpu-vcores": str(ANNOUNCED_VCORES),
                f"{nm}.local-dirs": str(self.folder / "nm-local"),
                f"{nm}.log-dirs": str(self.folder / "nm-logs"),
                f"{nm}.disk-health-checker.enable": "false",
                f"{nm}.pmem-check-enabled": "false",
                f"{nm}.vmem-check-enabled": "false",
            },
        )


def _write_xml(path: Path, properties: dict[str, str]) -> None:
    lines = [f"  <property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


def _kill_group(leader: int) -> None:
    """End a container: its first process leads a session of its own and outlives the NodeManager."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return
