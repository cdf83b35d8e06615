"""`node.Machine` for a host whose pods kubelet runs: its groups are found, sampled, written, restored; nothing is started.

In: kubelet's tree, a group of the executor's own (probed, and locked against a second executor). Out: observations, writes. A
file that no strategy desires a value for any more gets its former value, and all do when the executor ends. After a start
strategies have RESTORE_AFTER to desire values for what a killed executor left; then the rest is restored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from cotenant_node_executor.core.kubelet_pods import KUBELETS_END
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.kernel_machine import WATCHED, KernelMachine
from cotenant_node_executor.runtime.interface import AskEviction, PodToRun, Runtime
from cotenant_node_executor.runtime.kubelet import KubeletRuntime
from cotenant_node_executor.sampling.given import GivenMachine
from cotenant_node_executor.sampling.slow.worker import SlowWorker
from cotenant_node_executor.strategies.disk.blkio import ANNOTATION as ANNOTATION_BLKIO
from cotenant_node_executor.strategies.disk.pod_volumes import mount_paths
from cotenant_node_executor.strategies.situation import in_best_effort_tree
from cotenant_node_executor.targets.cgroup.paths import KubeletCgroupDriver
from cotenant_node_executor.targets.disks import MountPaths
from cotenant_node_executor.targets.interface import (
    BESTEFFORT,
    BURSTABLE,
    ROOT_GROUP,
    THREADS,
    CgroupDriver,
    Knob,
    KnobSupport,
    NodeCapabilities,
)
from cotenant_node_executor.targets.kubelet.binding import (
    NOTHING_BOUND,
    Bound,
    KubeletPod,
    bind,
    container_number,
    expected_directory,
)
from cotenant_node_executor.targets.kubelet.container_names import ContainerNames
from cotenant_node_executor.targets.kubelet.driver import KubeletDriver
from cotenant_node_executor.targets.kubelet.kubepods import Kubepods
from cotenant_node_executor.targets.other.volumes import VolumeFinder

logger = logging.getLogger(__name__)

RESTORE_AFTER_NS = 10_000_000_000
UNMATCHED_NS = 10_000_000_000
"""How long a directory and its pod may be without each other, as they come from two sources."""
STATIC_POD_HASH = "kubernetes.io/config.hash"
RESTORE_TRIES = 3


class KubeletMachine(KernelMachine):
    """kubelet's groups on this host."""

    lone_containers = False
    """A pod has a pause container too, whose group may be unknown."""

    def __init__(
        self,
        driver: KubeletDriver,
        own: CgroupDriver,
        capabilities: NodeCapabilities,
        state: Path,
        *,
        kubepods: Kubepods,
        names: ContainerNames,
        given: GivenMachine | None = None,
        slow: SlowWorker | None = None,
        static_cpus: bool = False,
    ) -> None:
        """`own`: the group of the executor's own, which holds no process. `static_cpus`: kubelet has the static CPU policy, so
        that suppression narrows containers alone."""
        self._static_cpus = static_cpus
        self._kubelet = driver
        self._own = own
        self._kubepods = kubepods
        self._names = names
        self._bound_pods: Mapping[str, PodToRun] | None = None
        self._layout: KubeletCgroupDriver | None = None
        self._runtimes: tuple[str, ...] = ()
        self._unmatched: dict[str, int] = {}
        """Mismatches, and since when."""
        self._kata: tuple[str, ...] = ()
        self._matched: tuple[Bound, Mapping[str, PodToRun]] = (NOTHING_BOUND, {})
        """The inputs of both."""
        self._restores_from_ns: int | None = None
        self._volumes = VolumeFinder(driver.pids)
        self._mounted: dict[str, MountPaths] = {}
        """Where the containers of pods with limits for their volumes mount these, by uid."""
        self._mounted_by: Mapping[str, PodToRun] | None = None
        super().__init__(driver, capabilities, state, given=given, slow=slow)

    def _open_runtime(self, state: Path) -> Runtime:
        del state
        self._pods = KubeletRuntime(self._kubelet)
        self._woken_by = (self._kubepods.fileno(),)
        return self._pods

    def _raise_family(self) -> None:
        """No effect: the group around kubelet's is not the executor's."""

    @property
    def asked_evictions(self) -> Mapping[str, AskEviction]:
        """Evictions to request from the API, by uid."""
        return self._pods.asked_evictions

    def existing_pods(self) -> tuple[str, ...]:
        """None is adopted: kubelet supervises them all."""
        return ()

    def _watched(self) -> Sequence[tuple[str, Knob]]:
        """See `KernelMachine`; where containers alone are narrowed, their CPU sets too."""
        if not self._static_cpus:
            return WATCHED
        containers = [group for group in self._driver.groups() if group.count("/") == 2 and in_best_effort_tree(group)]
        return (*WATCHED, *[(group, Knob.CPUSET_CPUS) for group in containers])

    # -- finding -------------------------------------------------------------------------------------------------------

    def observe(self, now: datetime, *, sample: bool) -> Observation:
        """See `core.node.Machine`."""
        now_ns = time.monotonic_ns()
        self._find(now_ns)
        seen = super().observe(now, sample=sample)
        if sample and self._with_disks:
            self._look_for_volumes()
        return msgspec.structs.replace(seen, strangers=self._strangers(now_ns), volumes=self._volumes.found)

    def _look_for_volumes(self) -> None:
        """Look for the disks of volumes that a pod's own limits name."""
        pods = self._pods.pods
        if pods is not self._mounted_by:
            self._mounted_by = pods
            asking = [each for each in pods.values() if ANNOTATION_BLKIO in each.pod.metadata.annotations]
            mounted = {each.uid: mount_paths(each.pod, each.group) for each in asking}
            self._mounted = {uid: paths for uid, paths in mounted.items() if paths}
        self._volumes.look(self._mounted)

    def _find(self, now_ns: int) -> None:
        """Match kubelet's directories with the pods, if either changed."""
        found = self._kubepods.look(now_ns)
        layout = self._kubepods.layout
        if layout is not None:
            unnamed = (path.rpartition("/")[2] for path in self._kubelet.bound.unnamed)
            numbers = [number for name in unnamed if (number := container_number(layout, name)) is not None]
            if numbers and self._names.look_for(numbers, now_ns):
                found = True
        if not found and self._pods.pods is self._bound_pods:
            return
        self._bound_pods = self._pods.pods
        before = self._kubelet.bound
        bound = bind(layout, self._kubepods.pods.values(), kubelet_pods(self._bound_pods.values()), self._names.names())
        self._kubelet.take(bound)
        for group, directory in before.directories.items():
            if bound.directories.get(group) != directory or bound.inodes.get(group) != before.inodes.get(group):
                self._writer.forget(group)
        if layout is not self._layout or bound.runtimes != self._runtimes:
            self._layout, self._runtimes = layout, bound.runtimes
            logger.info("%s", self.where)
        if bound.unnamed != before.unnamed and layout is not None:
            self._find(now_ns)

    @property
    def where(self) -> str:
        """kubelet's layout as found, in one line."""
        top = self._kubelet.top
        if self._kubepods.layout is None:
            return f"kubelet's pods: there is no kubepods.slice or kubepods below {top} yet"
        root = self._kubelet.directory("") or self._kubepods.layout.value
        named = f", runtime {', '.join(self._runtimes)}" if self._runtimes else ""
        return f"kubelet's pods: control groups below {top / root}, driver {self._kubepods.layout.value}{named}"

    def _strangers(self, now_ns: int) -> tuple[str, ...]:
        """Mismatches that have lasted for a while."""
        bound, pods = self._kubelet.bound, self._pods.pods
        if bound is not self._matched[0] or pods is not self._matched[1]:
            self._matched = (bound, pods)
            self._unmatched = {text: self._unmatched.get(text, now_ns) for text in self._without_match()}
            self._kata = tuple([f"pod {self._name_of(uid)}: a Kata pod, its containers are left alone" for uid in bound.kata])
        long = [text for text, since in self._unmatched.items() if now_ns - since >= UNMATCHED_NS]
        return (*self._kubepods.problems, *self._kata, *long)

    def _without_match(self) -> list[str]:
        """Directories without a pod, pods without one, and pods with unknown containers. kubelet removes the control
        group of a pod that has ended."""
        bound, pods = self._kubelet.bound, self._pods.pods
        unmatched = [f"{directory}: a group without a pod on LOG, left alone" for directory in bound.strangers]
        missing = [pods[uid] for uid in bound.missing if uid in pods and pods[uid].pod.status.phase not in KUBELETS_END]
        for pod in kubelet_pods(missing).values():
            unmatched.append(f"pod {self._name_of(pod.uid)}: no control group{self._expected(pod)}")
        for uid, to_run in pods.items():
            directory = bound.directories.get(to_run.group)
            if directory is None:
                continue
            there = [each.name for each in to_run.pod.spec.containers if f"{to_run.group}/{each.name}" not in bound.ids]
            others = [path for path in bound.unnamed if path.startswith(f"{directory}/")] if there else []
            if len(others) > 1:
                unmatched.append(
                    f"pod {self._name_of(uid)}: none of {len(others)} groups is known as container {', '.join(there)}: neither "
                    "its status nor a link in the folder of container logs names it"
                )
        return unmatched

    def _name_of(self, uid: str) -> str:
        pod = self._pods.pods.get(uid)
        return f"{pod.pod.metadata.namespace}/{pod.pod.metadata.name}" if pod is not None else f"uid {uid}"

    def _expected(self, pod: KubeletPod) -> str:
        """Where a pod's control group would be, with a space before it; "" where unknown."""
        layout = self._kubepods.layout
        return "" if layout is None else f" {expected_directory(layout, pod)}"

    # -- restoring -----------------------------------------------------------------------------------------------------

    def _wanted_values(self) -> Mapping[tuple[str, Knob], str]:
        """Desired values of strategies, and the original values of files without a desired value."""
        now_ns = time.monotonic_ns()
        if self._restores_from_ns is None:
            self._restores_from_ns = now_ns + RESTORE_AFTER_NS if len(self._kubelet.held) else now_ns
        if now_ns < self._restores_from_ns:
            return self._values
        due = self._kubelet.due(self._values.keys())
        return {**self._values, **due} if due else self._values

    def restore(self) -> None:
        """Restore every file's former value. LOG is no longer connected by then, so the process logs it."""
        restored = 0
        for _ in range(RESTORE_TRIES):
            due = self._kubelet.due(())
            if not due:
                break
            restored += len(self._writer.apply(due).written)
        logger.info("%d files of kubelet's groups have their original values again", restored)
        for group, knob in self._kubelet.due(()):
            logger.error("%s of %s could not be restored; the next start tries again", knob.value, group or "/")

    def stop_everything(self, now: datetime, grace_seconds: int) -> bool:
        """Kubelet's pods are not stopped; `close` restores the files that were set."""
        del now, grace_seconds
        return True

    def close(self) -> None:
        """See `KernelMachine`; also restore every file, as the groups belong to kubelet."""
        super().close()
        self.restore()
        self._other_writer.apply({})
        self._kubepods.close()
        self._kubelet.take(NOTHING_BOUND)
        if not self._own.close():
            logger.warning("%s is not removed: it contains processes", self._own.root_group)


def kubelet_pods(pods: Iterable[PodToRun]) -> dict[str, KubeletPod]:
    """The pods in the form that directories are matched with."""
    return {
        pod.uid: KubeletPod(
            pod.uid,
            pod.group,
            tuple([container.name for container in pod.pod.spec.containers]),
            pod.container_ids,
            static_uid=pod.pod.metadata.annotations.get(STATIC_POD_HASH, ""),
            runtime_class=pod.pod.spec.runtime_class_name or "",
        )
        for pod in pods
    }


def in_kubelets_tree(capabilities: NodeCapabilities, driver: KubeletDriver) -> NodeCapabilities:
    """The capabilities, limited to files of kubelet's groups; groups that do not exist yet are assumed to have them."""
    knobs = dict(capabilities.knobs)
    knobs[THREADS] = KnobSupport(False, "the threads of kubelet's pods are left where its CPU manager puts them")
    if driver.exists(""):
        for knob in Knob:
            files = [path for group in (ROOT_GROUP, BURSTABLE, BESTEFFORT) if (path := driver.path(group, knob)) is not None]
            if capabilities.supports(knob) and files and not any(path.exists() for path in files):
                why = f"kubelet's groups have no {files[0].name}: it enables no such controller"
                knobs[knob.value] = KnobSupport(False, why)
    return msgspec.structs.replace(capabilities, knobs=knobs, root=driver.root_group)
