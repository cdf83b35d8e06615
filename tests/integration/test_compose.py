"""compose.yaml, service by service: its commands, environment and mounts as processes in a network namespace of their own.

Images and health checks are not tried. A container's path becomes the file or folder that is mounted there, by name.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import pod_document
from tests.network_namespace import USABLE, network_namespace
from tests.other_processes import wait_for

REPOSITORY = Path(__file__).parents[2]
WAIT_SECONDS = 90.0
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.skipif(not USABLE, reason="needs root for a network namespace: compose.yaml's ports are fixed")


class Composed:
    """The services of compose.yaml on this machine."""

    def __init__(self, folder: Path, within: tuple[str, ...]) -> None:
        """`within`: what runs a command where the ports are free."""
        self._within = within
        self._services: dict[str, dict[str, Any]] = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def names(self) -> list[str]:
        return list(self._services)

    def _paths(self, name: str) -> dict[str, str]:
        """The container's paths and the host's, longest first; a file that lies beside another in the container gets a folder
        of its own for that."""
        root = self.folder / "containers" / name
        found: dict[str, str] = {}
        for volume in self._services[name].get("volumes", ()):
            source, inside = volume.split(":")[:2]
            if source.startswith("."):
                host = (self.folder if source.startswith("./credentials") else REPOSITORY) / source
            else:
                host = self.folder / "volumes" / source
                host.mkdir(parents=True, exist_ok=True)
            mounted = root / inside.lstrip("/")
            mounted.parent.mkdir(parents=True, exist_ok=True)
            if not mounted.is_symlink():
                mounted.symlink_to(host.resolve())
            found[inside] = str(mounted)
        return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))

    def _command(self, name: str) -> tuple[list[str], dict[str, str]]:
        service, paths = self._services[name], self._paths(name)

        def on_host(text: str) -> str:
            for inside, host in paths.items():
                text = text.replace(inside, host)
            return text

        environment = {key: on_host(str(value).replace("$$", "$")) for key, value in service.get("environment", {}).items()}
        words = [on_host(str(word).replace("$$", "$")) for word in service["command"]]
        return [*self._within, *words], environment

    def run(self, name: str) -> bool:
        """Run a service that ends; whether it succeeded."""
        command, environment = self._command(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            done = subprocess.run(command, env=_surroundings(environment), stdout=log, stderr=log, timeout=WAIT_SECONDS)
        return done.returncode == 0

    def start(self, name: str) -> None:
        """Start a service that stays."""
        command, environment = self._command(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, env=_surroundings(environment), stdout=log, stderr=log)

    def stop(self) -> dict[str, int]:
        """Stop everything as `docker compose down` does, services before servers; returns the exit statuses."""
        for first in (False, True):
            group = {name: process for name, process in self._running.items() if name.startswith("nats-") is first}
            for process in group.values():
                process.send_signal(signal.SIGTERM)
            for process in group.values():
                try:
                    process.wait(WAIT_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        return {name: process.returncode for name, process in self._running.items()}

    def log(self) -> str:
        """The ends of all logs."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in logs)

    def console(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `cotenant` as an administrator on this host."""
        environment = _surroundings({"KUBECONFIG": str(self.folder / "credentials" / "kubeconfig")})
        command = [*self._within, "cotenant", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS)


def _surroundings(more: dict[str, str]) -> dict[str, str]:
    return {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/"), **more}


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composed]:
    (tmp_path / "credentials").mkdir()
    with network_namespace("compose") as within:
        made = Composed(tmp_path, within)
        try:
            yield made
        finally:
            made.stop()
            print(made.log())  # shown where the test fails


def test_what_the_file_says_makes_a_cell_that_runs_a_pod(composed: Composed, tmp_path: Path) -> None:
    assert composed.run("setup")
    for name in composed.names:
        if name not in ("setup", "streams"):
            composed.start(name)
    # restart: on-failure
    wait_for("the streams to be declared", lambda: composed.run("streams"), WAIT_SECONDS)

    def items(plural: str) -> list[dict[str, Any]]:
        found = composed.console("get", plural, "-o", "json")
        return list(json.loads(found.stdout)["items"]) if found.returncode == 0 else []

    def ready() -> bool:
        conditions = {
            node["metadata"]["name"]: {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
            for node in items("nodes")
        }
        return [conditions.get(f"sim-{number}", {}).get("Ready") for number in (1, 2, 3)] == ["True"] * 3

    wait_for("the nodes to be ready", ready, WAIT_SECONDS)
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(json.dumps(pod_document("web", uid="", image="simulated", requests={"cpu": "300m", "memory": "256Mi"})))
    applied = composed.console("apply", "-f", str(manifest))
    assert applied.returncode == 0, applied.stderr
    wait_for("the pod to run", lambda: [pod for pod in items("pods") if pod["status"].get("phase") == "Running"], WAIT_SECONDS)
    assert set(composed.stop().values()) == {0}
