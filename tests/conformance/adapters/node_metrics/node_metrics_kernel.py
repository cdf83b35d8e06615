"""node-metrics vectors of what a node's kernel says: cgroup files, directories, CPU and memory usage, pressure, cold memory,
cycles and instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from posixpath import join, normpath
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from cotenant.domain.qos import KubeQoS
from cotenant.model.quantities import parse_value
from cotenant_node_executor.sampling import idle_pages, proc, usage
from cotenant_node_executor.sampling.sampler import system_usage
from cotenant_node_executor.sampling.slow import cpi as counters
from cotenant_node_executor.sampling.snapshot import GroupUsage, HostApplicationSample, NodeUsage, PodSample, PressureSet
from cotenant_node_executor.targets import convert, parse
from cotenant_node_executor.targets.cgroup import paths
from cotenant_node_executor.targets.cgroup.files import KNOB_FILES
from cotenant_node_executor.targets.cgroup.hierarchy import V1_CONTROLLERS, V2_CONTROLLERS, Hierarchies
from cotenant_node_executor.targets.cgroup.paths import HostApplicationPath, KubeletCgroupDriver
from cotenant_node_executor.targets.cpulist import parse_cpu_list, smallest_cpu_list
from cotenant_node_executor.targets.interface import CgroupVersion, Knob
from cotenant_node_executor.targets.kubelet.binding import (
    Bound,
    KubeletPod,
    bind,
    container_number,
    expected_directory,
    runtime_of,
)
from cotenant_node_executor.targets.kubelet.driver import KubeletDriver
from cotenant_node_executor.targets.kubelet.held import HeldFiles
from cotenant_node_executor.targets.kubelet.kubepods import RESCAN_NS, SETTLE_NS, FoundContainer, FoundPod, Kubepods
from cotenant_node_executor.targets.psi import PressureLine, parse_pressure
from tests.conformance.mended import mended

Given = dict[str, Any]
FAILED: dict[str, object] = {"value": None, "error": True}


def _value(result: object) -> dict[str, object]:
    return {"value": result, "error": False}


def _attempt(function: Callable[[], object]) -> dict[str, object]:
    try:
        return _value(function())
    except ValueError:
        return FAILED


def _version(given: Given) -> CgroupVersion:
    return CgroupVersion.V2 if given.get("cgroup_version") == "v2" else CgroupVersion.V1


def cgroup_parse(given: Given, *, name: str) -> object:
    version, content = _version(given), given["content"]

    def memory_stat() -> object:
        stat = parse.parse_memory_stat(version, content)
        return {field: getattr(stat, field) for field in stat.__struct_fields__}

    def cpu_stat() -> object:
        stat = parse.parse_cpu_stat(version, content)
        return {field: getattr(stat, field) for field in stat.__struct_fields__}

    def memory_limit() -> int:
        return (convert.memory_limit_v1 if version is CgroupVersion.V1 else convert.memory_limit_v2)(content)

    functions: dict[str, Callable[[], object]] = {
        "proc_stat_ticks": lambda: proc.parse_busy_ticks(content),
        "proc_stat_per_cpu_ticks": lambda: {str(k): v for k, v in proc.parse_busy_ticks_per_cpu(content).items()},
        "cpu_stat": cpu_stat,
        "cpuacct_usage": lambda: parse.parse_cpu_usage_ns(version, content),
        "cpu_shares": lambda: parse.parse_cpu_shares(version, content),
        "shares_to_weight": lambda: convert.shares_to_weight(convert.parse_int(content, "cpu.shares")),
        "cpu_cfs_quota": lambda: parse.parse_cfs_quota(version, content),
        "cpu_cfs_period": lambda: parse.parse_cfs_period(version, content),
        "cpuset": lambda: list(parse_cpu_list(content)),
        "memory_limit": memory_limit,
        "memory_usage": lambda: parse.parse_unsigned(content, "memory usage"),
        "memory_stat": memory_stat,
        "memory_numa_stat": lambda: [
            {"numa": each.numa, "pages": each.pages} for each in parse.parse_numa_stat(version, content)
        ],
        "kv_map": lambda: parse.parse_key_values(content),
        "cgroup_procs": lambda: list(parse.parse_pids(content)),
    }
    return _attempt(functions[given["fn"]])


def cgroup_paths(given: Given, *, name: str) -> object:
    layout = KubeletCgroupDriver(given.get("driver", "systemd"))
    qos = KubeQoS(given.get("kube_qos") or "Guaranteed")

    def container_path() -> str:
        return normpath(join(given["pod_dir"], paths.container_dir(layout, given["container_id"])))

    def file() -> str:
        return _file_read(given, Bound(directories={"pod/container": container_path()}))

    def application() -> str:
        app = given["app"]
        if app is None:
            return ""
        path = app.get("cgroupPath")
        where = path and HostApplicationPath(path.get("base", ""), path.get("parentDir", ""), path.get("relativePath", ""))
        return paths.host_application_dir(layout, app["name"], app.get("qos") or "", where)

    def absolute() -> str:
        group = {KubeQoS.GUARANTEED: "", KubeQoS.BURSTABLE: "burstable", KubeQoS.BEST_EFFORT: "besteffort"}[qos]
        knob = {"cpu": Knob.CPU_SHARES, "cpuset": Knob.CPUSET_CPUS}[given["subsystem"]]
        with _kubelets(given, bind(layout, [], {}, {})) as (driver, shown):
            path = driver.path(group, knob)
            assert path is not None
            return shown(path.parent)

    functions: dict[str, Callable[[], object]] = {
        "pod_dir": lambda: expected_directory(layout, _pod(given["uid"], qos)),
        "kube_qos_of_dir": lambda: paths.kube_qos_of_dir(given["dir"]).value,
        "container_dir": container_path,
        "parse_pod_id": lambda: paths.pod_uid_of_dir(layout, given["basename"]),
        "parse_container_id": lambda: paths.container_number_of_dir(layout, given["basename"]),
        "absolute_dir": absolute,
        "container_file": file,
        "host_app_dir": application,
        "detect_driver": lambda: paths.detect_layout(_version(given), given["existing_dirs"]).value,
        "sandbox_id": lambda: _sandbox(layout, given),
        "pleg_event": lambda: _life_event(layout, given),
        "be_current_cpuset": lambda: list(smallest_cpu_list(given["qos_dir"], given["container_dirs"])),
    }
    return _attempt(functions[given["fn"]])


@contextmanager
def _kubelets(given: Given, bound: Bound) -> Iterator[tuple[KubeletDriver, Callable[[Path], str]]]:
    """The driver of kubelet's tree with the hierarchies mounted where the vector has them, in a folder; and how a path looks
    without that folder."""
    with TemporaryDirectory() as folder:
        root = Path(folder + given["cgroup_root"])
        first = _version(given) is CgroupVersion.V1
        mounts = {name: root / name for name in V1_CONTROLLERS} if first else {}
        for mount in mounts.values() or (root,):
            mount.mkdir(parents=True)
        hierarchies = Hierarchies(mounts, None if first else root, () if first else V2_CONTROLLERS, {})
        driver = KubeletDriver(hierarchies, "", HeldFiles(Path(folder, "journal", "held")))
        driver.take(bound)
        yield driver, lambda path: str(path).removeprefix(folder)


def _file_read(given: Given, bound: Bound) -> str:
    """The file of the container's group that the driver reads: a value's, or the one that names its threads or processes."""
    version, file = _version(given), given["resource"]
    ((group, directory),) = bound.directories.items()
    with _kubelets(given, bound) as (driver, shown):
        if file in ("tasks", "cgroup.procs"):
            path = driver.top / directory / file
            path.parent.mkdir(parents=True)
            path.write_text("7\n")
            assert (driver.threads if file == "tasks" else driver.pids)(group) == [7]
            return shown(path)
        knob = next(knob for knob, entry in KNOB_FILES.items() if entry.file(version) == file)
        found = driver.path(group, knob)
        assert found is not None
        return shown(found)


def _pod(uid: str, qos: KubeQoS, ids: Iterable[str] = ()) -> KubeletPod:
    """A pod whose containers are named by their ids."""
    group = f"pod{uid}" if qos is KubeQoS.GUARANTEED else f"{qos.value.lower()}/pod{uid}"
    return KubeletPod(uid, group, (*ids,), {each: each for each in ids})


def _sandbox(layout: KubeletCgroupDriver, given: Given) -> str:
    """The one directory that belongs to no known container, as the service leaves it over."""
    pod = _pod("u", KubeQoS.BURSTABLE, (*given["container_ids"], *given["init_container_ids"]))
    found = FoundPod("u", KubeQoS.BURSTABLE, "p", 1, tuple([FoundContainer(each, 2) for each in given["container_dirs"]]))
    unnamed = [path.rpartition("/")[2] for path in bind(layout, [found], {"u": pod}, {}).unnamed]
    if len(unnamed) != 1:
        raise ValueError(f"{len(unnamed)} directories belong to no known container")
    return f"{runtime_of(unnamed[0])}://{container_number(layout, unnamed[0])}"


def _seen(kubepods: Kubepods) -> set[tuple[str, str | None]]:
    """Pods, and pods with containers."""
    assert kubepods.layout is not None
    pods: set[tuple[str, str | None]] = {(each.uid, None) for each in kubepods.pods.values()}
    return pods | {
        (pod.uid, container_number(kubepods.layout, each.name)) for pod in kubepods.pods.values() for each in pod.containers
    }


def _life_event(layout: KubeletCgroupDriver, given: Given) -> object:
    """What comes or goes when that directory is made or removed in kubelet's tree."""
    with TemporaryDirectory() as folder:
        # The vectors' trees begin below kubelet's root.
        below = [part for part in given["path"].split("/") if part not in (".", "test")]
        directory = Path(folder, paths.tier_dir(layout, KubeQoS.GUARANTEED), *below)
        there = directory if given["action"] == "delete" else directory.parent
        there.mkdir(parents=True)
        kubepods = Kubepods(Path(folder), layout=layout)
        kubepods.look(0)
        before = _seen(kubepods)
        if given["action"] == "delete":
            directory.rmdir()
        else:
            directory.mkdir()
        kubepods.look(RESCAN_NS)
        kubepods.look(RESCAN_NS + SETTLE_NS)
        after = _seen(kubepods)
        kubepods.close()
    changed = sorted(before ^ after, key=str)
    if not changed:
        return None
    ((uid, container),) = changed
    suffix = "Added" if after > before else "Deleted"
    if container is None:
        return {"type": f"pod{suffix}", "podID": uid}
    return {"type": f"container{suffix}", "podID": uid, "containerID": container}


def _counter(reading: dict[str, int] | None, key: str, time: str, unit_ns: int = 1) -> usage.CumulativeCounter | None:
    return None if reading is None else usage.CumulativeCounter(reading[key], reading[time] * unit_ns)


def _reading(given: dict[str, float] | None, outdated_seconds: float) -> GroupUsage:
    """A group's reading; one that is outdated has no figures, as a snapshot is of one moment."""
    if given is None or given["age_seconds"] > outdated_seconds:
        return GroupUsage("", None, None, None, None, PressureSet())
    return GroupUsage("", round(given["cpu"] * 1000), round(given["memory"]), None, None, PressureSet())


def _batch_requests(pod: Given) -> tuple[str, list[int]]:
    qos = pod.get("metadata", {}).get("labels", {}).get("koordinator.sh/qosClass", "")
    requests = (each.get("resources", {}).get("requests", {}) for each in pod["spec"].get("containers", ()))
    return qos, [parse_value(each["kubernetes.io/batch-cpu"]) for each in requests if "kubernetes.io/batch-cpu" in each]


def cpu_usage(given: Given, *, name: str) -> object:
    if given["fn"] in ("node_cores", "cgroup_cores", "be_usage_milli"):
        key = "ticks" if given["fn"] == "node_cores" else "usage_ns"
        time, unit = ("time_ms", 1_000_000) if given["fn"] == "be_usage_milli" else ("time_ns", 1)
        before, now = (_counter(given[which], key, time, unit) for which in ("last", "current"))
        assert now is not None
        milli = usage.group_milli(before, now, given.get("jiffy_ns", 1))
        return {"value": milli if milli is None or given["fn"] == "be_usage_milli" else milli / 1000}
    if given["fn"] == "be_real_limit_milli":
        cpus = len(parse_cpu_list(given["cpuset"]))
        limit = usage.best_effort_real_limit_milli(cpus, given["cfs_quota_us"], given["cfs_period_us"])
        return {"value": limit}
    if given["fn"] == "be_request_milli":
        return {"value": usage.best_effort_request_milli(_batch_requests(pod) for pod in given["pods"])}
    if given["fn"] == "throttled_ratio":
        last, current = (
            None if given[which] is None else (given[which]["nr_periods"], given[which]["nr_throttled"])
            for which in ("last", "current")
        )
        assert current is not None
        return {"value": usage.throttled_ratio(last, current)}
    return {"value": _system(given)}


def _system(given: Given) -> dict[str, float] | None:
    """What the system uses; None where a reading is missing or outdated: a snapshot without a figure is not reported."""
    node, outdated = given["node"], given["outdated_seconds"]
    readings = {name: _reading(each, outdated) for name, each in (*given["pods"].items(), ("host", given["host_apps"]))}
    if node is None or any(each.cpu_milli is None for each in readings.values()):
        return None
    whole = NodeUsage(round(node["cpu"] * 1000), 0, round(node["memory"]), 0, 0, PressureSet())
    pods = {name: PodSample(name, "", readings[name]) for name in given["pods"]}
    found = system_usage(whole, pods, {"host": HostApplicationSample("host", readings["host"])})
    return {"cpu": (found.cpu_milli or 0) / 1000, "memory": found.memory_bytes}


def mem_usage(given: Given, *, name: str) -> object:
    def node() -> object:
        found = proc.parse_node_meminfo(given["content"])
        return {
            "total_bytes": found.total_bytes,
            "usage_bytes": found.usage_bytes,
            "usage_with_page_cache_bytes": found.usage_with_page_cache_bytes,
        }

    def host_application() -> int:
        if given["policy"] == "usageWithPageCache":
            return parse.parse_unsigned(str(given["memory_usage_in_bytes"]), "memory usage")
        return parse.parse_memory_stat(CgroupVersion.V1, given["memory_stat"]).without_page_cache

    functions: dict[str, Callable[[], object]] = {
        "node_meminfo": node,
        "numa_meminfo_kb": lambda: proc.parse_numa_meminfo_kb(given["content"]),
        "numa_usage": lambda: proc.numa_usage_bytes(proc.parse_numa_meminfo_kb(given["content"])),
        "cgroup_usage": lambda: parse.parse_memory_stat(_version(given), given["content"]).without_page_cache,
        "cgroup_usage_with_page_cache": lambda: parse.parse_memory_stat(_version(given), given["content"]).with_page_cache,
        "host_app_shared_memory": host_application,
        "hugepages_bytes": lambda: proc.hugepages_bytes(given["nr_hugepages"]),
    }
    return _attempt(functions[given["fn"]])


def _pressure_line(line: PressureLine) -> dict[str, float]:
    return {"avg10": line.avg10, "avg60": line.avg60, "avg300": line.avg300, "total": line.total_us}


def psi_parse(given: Given, *, name: str) -> object:
    def pressure() -> object:
        found = parse_pressure(given["content"])
        return {
            "some": _pressure_line(found.some),
            "full": _pressure_line(found.full),
            "full_supported": found.full_supported,
        }

    return _attempt(pressure)


def _with_page_cache(given: Given) -> int:
    if given["fn"] == "node_hot_usage":
        return proc.parse_node_meminfo(given["meminfo"]).usage_with_page_cache_bytes
    return parse.parse_memory_stat(_version(given), given["memory_stat"]).with_page_cache


def cold_memory(given: Given, *, name: str) -> object:
    def stats() -> object:
        found = idle_pages.parse_idle_page_stats(given["content"])
        shown = msgspec.to_builtins(found)
        return {**{key: value for key, value in shown.items() if key != "rows"}, **shown["rows"]}

    def hot() -> object:
        return idle_pages.hot_bytes(_with_page_cache(given), given["cold_bytes"])

    def enablement() -> object:
        supported = idle_pages.is_supported(given["scan_period_file_exists"], given["use_hierarchy_file_exists"])
        return {"supported": supported, "enabled": supported and given["gate_ColdPageCollector"]}

    functions: dict[str, Callable[[], object]] = {
        "parse": stats,
        "cold_bytes": lambda: idle_pages.parse_idle_page_stats(given["content"]).cold_bytes,
        "node_hot_usage": hot,
        "cgroup_hot_usage": hot,
        "enablement": enablement,
    }
    result = _attempt(functions[given["fn"]])
    measured = given["fn"] in ("node_hot_usage", "cgroup_hot_usage") and not result["error"]
    if measured and given["cold_bytes"] > _with_page_cache(given):
        return mended(result, "$.value", trap="9: cold above usage gives astronomically large values")
    return result


def cpi(given: Given, *, name: str) -> object:
    counts = [
        counters.CpuCount(each["time_enabled"], each["time_running"], each["cycles"], each["instructions"])
        for each in given["per_cpu"]
    ]
    found = counters.summed(counts)
    return {"cycles": found.cycles, "instructions": found.instructions, "cpi": found.cpi}
