"""The process runtime: a pod's containers as real processes in their control groups.

In: orders. Out: states read from files, so that a restarted executor sees the same as the one that started the processes. A
container is a shim (`sh`, in the group "shims", in its own session) that runs the program in the foreground in the
container's group. Processes that remain when the program exits are killed, as with any container. The image is ignored.

State on disk: one folder per pod below `state`. If it is lost, running processes are found by their groups.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Set
from datetime import datetime
from pathlib import Path

import msgspec

from cotenant.api.objects.pod_resources import container_requests
from cotenant.events.node.runs import RunStatus
from cotenant.model.names import MEMORY
from cotenant_node_executor.runtime.container_files import (
    SHIM,
    AttemptFiles,
    attempt_files,
    drop_old_attempts,
    newest_attempt,
)
from cotenant_node_executor.runtime.endings import ProcessEndings
from cotenant_node_executor.runtime.interface import (
    Collect,
    ContainerState,
    EndAttempt,
    Forget,
    LogRequest,
    Order,
    PodLogUnavailableError,
    PodToRun,
    Start,
    Stop,
)
from cotenant_node_executor.runtime.launch import CANNOT_RUN
from cotenant_node_executor.runtime.log_files import read_tail
from cotenant_node_executor.runtime.observed import ObservedContainers
from cotenant_node_executor.runtime.oom_score import oom_score_adj
from cotenant_node_executor.runtime.program import PRIVATE_BYTES, Program, arguments, environment, user_and_group
from cotenant_node_executor.runtime.users import has_own_users, own_user
from cotenant_node_executor.targets.interface import CgroupDriver, Knob

logger = logging.getLogger(__name__)

SHIM_GROUP = "shims"
PIDS_MAX = 4096
"""Processes and threads of one pod."""
LAUNCH = Path(__file__).with_name("launch.py")


class _Known(msgspec.Struct):
    """A pod with processes or files in this runtime."""

    group: str


class ProcessRuntime:
    """Runs containers below one driver's subtree; `state` is a folder that only this runtime uses."""

    def __init__(self, driver: CgroupDriver, state: Path, machine_bytes: int) -> None:
        self._driver = driver
        self._machine_bytes = machine_bytes
        self._state = state
        self._known: dict[str, _Known] = {}
        self._endings = ProcessEndings(driver, self._folder)
        self.containers = ObservedContainers(driver, self._container_group)
        state.mkdir(parents=True, exist_ok=True)
        # Environments and logs are private to their pods.
        state.chmod(0o700)
        driver.create(SHIM_GROUP)

    # -- what is there -------------------------------------------------------------------------------------------------

    def adopt(self, pods: Mapping[str, PodToRun], runs: Mapping[str, RunStatus], now: datetime) -> None:
        """Find running pods by their folders, or by their groups if the folder was lost."""
        del now
        groups: dict[str, str] = {}
        for group in self._driver.groups():
            name = group.rpartition("/")[2]
            if name.startswith("pod") and group in (name, f"burstable/{name}", f"besteffort/{name}"):
                groups[name.removeprefix("pod")] = group
        for folder in sorted(self._state.iterdir()):
            if folder.is_dir():
                found = groups.get(folder.name) or (pods[folder.name].group if folder.name in pods else "")
                self._known[folder.name] = _Known(group=found)
        for uid, group in sorted(groups.items()):
            known = self._known.setdefault(uid, _Known(group=group))
            for container in self._containers_of(group):
                if newest_attempt(self._folder(uid, container)) is None:
                    self._write_lost_attempt(uid, container, known, runs.get(uid))
        for uid in self._known:
            self._find_attempts(uid)

    def follow(self, pods: Mapping[str, PodToRun]) -> None:
        """No effect: this runtime depends on orders alone."""

    def _find_attempts(self, uid: str) -> None:
        """Find the newest attempts of a pod by its folder."""
        self.containers.add_pod(uid)
        folder = self._state / uid
        for container in sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else ():
            files = newest_attempt(folder / container)
            if files is not None:
                self.containers.add(uid, container, files)

    def _write_lost_attempt(self, uid: str, container: str, known: _Known, run: RunStatus | None) -> None:
        """Recreate the number of an attempt whose files were lost but whose processes may be running."""
        attempt = next((entry.restarts for entry in run.containers if entry.name == container), 0) if run else 0
        files = attempt_files(self._folder(uid, container), attempt)
        files.stem.parent.mkdir(parents=True, exist_ok=True)
        files.file("launch").write_text("{}", encoding="ascii")
        pids = self._driver.pids(f"{known.group}/{container}")
        if pids:
            files.file("pid").write_text(f"{pids[0]}\n", encoding="ascii")

    def poll(self, now: datetime) -> Mapping[str, Mapping[str, ContainerState]]:
        """The states of all containers; processes that a program left behind are killed, logs bounded."""
        return self.containers.poll(now)

    def changed(self) -> Set[str]:
        """Pods whose states changed since the last call."""
        return self.containers.changed()

    # -- orders --------------------------------------------------------------------------------------------------------

    def carry_out(self, order: Order, now: datetime) -> None:
        """Carry out one order, or continue it."""
        if isinstance(order, Stop | EndAttempt | Collect):
            self.containers.look_again(order.uid)
        match order:
            case Start():
                self._start(order)
            case Stop() if order.uid in self._known:
                group = self._known[order.uid].group
                self._endings.stop(order, group, self._containers_of(group), now)
            case EndAttempt() if order.uid in self._known:
                self._endings.end_attempt(order, self._known[order.uid].group, now)
            case Collect():
                self._collect(order.uid)
            case Forget():
                if self._collect(order.uid):
                    shutil.rmtree(self._state / order.uid, ignore_errors=True)
                    self._known.pop(order.uid, None)
                    self._endings.forget(order.uid)
                    self.containers.drop_pod(order.uid)

    def _start(self, order: Start) -> None:
        pod = order.pod
        known = self._known.setdefault(pod.uid, _Known(group=pod.group))
        known.group = pod.group
        folder = self._folder(pod.uid, order.container)
        newest = newest_attempt(folder) if folder.is_dir() else None
        if newest is not None and newest.attempt >= order.attempt:
            return
        folder.mkdir(parents=True, exist_ok=True)
        drop_old_attempts(folder, order.attempt)
        files = attempt_files(folder, order.attempt)
        group = pod.container_group(order.container)
        self.containers.starting(group)
        container = next(entry for entry in pod.pod.spec.containers if entry.name == order.container)
        env = environment(pod.pod, container, pod.node)
        try:
            own = own_user(self._state, pod.uid) if has_own_users() else os.geteuid()
        except OSError as error:
            self._fail(order, files, f"no user for the pod: {error}")
            return
        uid, gid = user_and_group(pod.pod, container, own)
        self._bound_processes(pod.group)
        program = Program(
            argv=arguments(container, env),
            env=env,
            cwd=container.working_dir or "/",
            uid=uid,
            gid=gid,
            procs=[str(path) for path in self._driver.procs_paths(group)],
            pid_file=str(files.file("pid")),
            error_file=str(files.file("error")),
            oom_score_adj=oom_score_adj(
                pod.pod, container_requests(container).get(MEMORY, 0), self._machine_bytes, container.name
            ),
            private_bytes=PRIVATE_BYTES,
        )
        files.file("wait").write_text(f"{order.backoff_seconds}\n", encoding="ascii")
        files.file("launch").touch(mode=0o600)
        files.file("launch").write_bytes(msgspec.json.encode(program))
        try:
            self.containers.add(pod.uid, order.container, files, self._spawn(files, uid))
        except OSError as error:
            self._fail(order, files, f"cannot start the shim: {error}")

    def _fail(self, order: Start, files: AttemptFiles, why: str) -> None:
        """Record a failed attempt whose program was never started."""
        files.file("launch").touch(mode=0o600)
        files.file("error").write_text(why, encoding="utf-8")
        files.file("status").write_text(f"{CANNOT_RUN}\n", encoding="ascii")
        self.containers.add(order.pod.uid, order.container, files)

    def _bound_processes(self, group: str) -> None:
        """Limit the processes and threads of a pod, if the kernel supports it."""
        try:
            self._driver.write(group, Knob.PIDS_MAX, str(PIDS_MAX))
        except (OSError, ValueError) as error:
            logger.warning("%s: pids.max cannot be set: %s", group, error)

    def _spawn(self, files: AttemptFiles, uid: int) -> subprocess.Popen[bytes]:
        """Start the shim in its own session, so that it survives this executor and its supervisor. The log is the user's
        own: it may reopen /dev/stdout, and no other pod can read it."""
        shims = [str(path) for path in self._driver.procs_paths(SHIM_GROUP)]
        launch = [sys.executable, "-I", "-S", str(LAUNCH), str(files.file("launch"))]
        descriptor = os.open(files.file("log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab") as log:
            if has_own_users():
                os.fchown(descriptor, uid, -1)
            return subprocess.Popen(
                ["/bin/sh", "-c", SHIM, "cotenant-shim", str(files.stem), *shims, "--", *launch],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
            )

    def _collect(self, uid: str) -> bool:
        """Remove the pod's groups; False while a process is still exiting."""
        known = self._known.get(uid)
        if known is None or not known.group or not self._driver.exists(known.group):
            return True
        if self._driver.pids(known.group):
            self._driver.kill(known.group)
        try:
            self._driver.remove(known.group)
        except OSError:
            return not self._driver.exists(known.group)
        return True

    # -- logs ----------------------------------------------------------------------------------------------------------

    def read_log(self, request: LogRequest) -> str:
        """Return the end of a container's log. Raises PodLogUnavailableError."""
        folder = self._state / request.uid / request.container
        newest = newest_attempt(folder) if folder.is_dir() else None
        if newest is None:
            raise PodLogUnavailableError(f"container {request.container} has not been started on this node")
        files = attempt_files(folder, newest.attempt - 1) if request.previous else newest
        log = files.file("log")
        if not log.exists():
            raise PodLogUnavailableError(f"container {request.container} has no log of an attempt before this one")
        return read_tail(log, request.tail_lines, request.limit_bytes)

    def _folder(self, uid: str, container: str) -> Path:
        return self._state / uid / container

    def _container_group(self, uid: str, container: str) -> str:
        group = self._known[uid].group
        return f"{group}/{container}" if group and self._driver.exists(f"{group}/{container}") else ""

    def _containers_of(self, group: str) -> list[str]:
        prefix = f"{group}/"
        return [entry.removeprefix(prefix) for entry in self._driver.groups() if entry.startswith(prefix)]
