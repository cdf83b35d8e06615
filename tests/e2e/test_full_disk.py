"""A disk that others fill to the last byte, under the whole stack: refusals, and everything back once there is space."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from cotenant_console.api.credentials import read_kubeconfig
from tests.e2e.stack import BIN, WAIT_SECONDS, wait_for

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root for a file system of its own"),
]
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class SmallDisk:
    """A stack on a tmpfs of its own, which it shares with somebody else's file."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        mounted = f'mount -t tmpfs -o size={mebibytes}m tmpfs {folder} && exec "$@"'
        up = (BIN / "cotenant", "up", "--nodes", "0", "--data", folder / "data")
        self.screen = folder.with_suffix(".screen")
        with self.screen.open("wb") as output:
            command = ("unshare", "--mount", "sh", "-c", mounted, "sh", *up)
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        self.disk = Path(f"/proc/{self.process.pid}/root{folder}")
        wait_for("the stack to be ready", lambda: self.shows("ready after"))
        self.answers: dict[str, int] = {}
        self.server = read_kubeconfig(self.disk / "data/kubeconfig")

    def shows(self, text: str) -> bool:
        """Whether the screen has shown it."""
        shown = self.screen.read_text()
        assert self.process.poll() is None, shown
        return text in shown

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        """Ask the API; return status and text."""
        data = None if body is None else json.dumps(body).encode()
        credentials = self.server.credentials
        headers = {"Content-Type": "application/json", **credentials.headers}
        request = urllib.request.Request(self.server.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS, context=credentials.context()) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def create(self) -> int:
        """Create one object more, and remember what came of it; return the status."""
        name = f"c{len(self.answers)}"
        status, _ = self.ask("POST", CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        self.answers[name] = status
        return status

    def created(self, status: int) -> set[str]:
        """The objects whose creation was answered so."""
        return {name for name, answer in self.answers.items() if answer == status}

    def objects(self) -> set[str]:
        """The objects that there are."""
        return {item["metadata"]["name"] for item in json.loads(self.ask("GET", CONFIG_MAPS)[1])["items"]}

    def fill(self) -> None:
        """Write somebody else's file until nothing more fits on the disk."""
        with (self.disk / "foreign").open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                return

    def empty(self) -> None:
        """Remove that file."""
        (self.disk / "foreign").unlink()

    def close(self) -> None:
        """End the stack."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(WAIT_SECONDS)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path, 400)
    yield made
    made.close()


def test_a_disk_filled_by_others_is_said_and_all_is_back_once_there_is_space(stack: SmallDisk) -> None:
    assert stack.create() == HTTPStatus.CREATED

    def refused() -> bool:
        stack.fill()
        return stack.create() == HTTPStatus.INSUFFICIENT_STORAGE

    wait_for("a refusal", refused)
    wait_for("the screen", lambda: stack.shows("is full: 0.0 MiB are free") and stack.shows(" FULL"))
    status, said = stack.ask("GET", "/readyz")
    assert (status, said.startswith("ok: the disk of nats-server")) == (HTTPStatus.OK, True)
    assert stack.created(HTTPStatus.CREATED) <= stack.objects()

    # Services and executors write on until a write fails: from then on the server stores nothing before it is started again.
    def has_failed() -> bool:
        stack.fill()
        log = (stack.disk / "data/logs/nats-server.log").read_bytes()
        return b"no space left" in log or b"DISABLED" in log

    wait_for("a write of the server to fail", has_failed)
    stack.empty()
    wait_for("nats-server to be started again", lambda: stack.shows("nats-server must be restarted"))
    wait_for("writes", lambda: stack.create() == HTTPStatus.CREATED)
    wait_for("the screen", lambda: stack.shows("there is room on LOG and its disk again"))
    assert stack.created(HTTPStatus.CREATED) <= stack.objects()
    assert not stack.created(HTTPStatus.INSUFFICIENT_STORAGE) & stack.objects()
    stack.close()
    assert stack.process.returncode == 0, stack.screen.read_text()
