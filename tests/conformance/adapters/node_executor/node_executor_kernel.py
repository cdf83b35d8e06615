"""node-executor vectors of the write layer: conversions between cgroup versions, names, and the leveled write."""

from __future__ import annotations

from typing import Any

from cotenant_node_executor.targets import convert
from cotenant_node_executor.targets.cgroup import paths
from cotenant_node_executor.targets.cgroup.files import kernel_text, own_value
from cotenant_node_executor.targets.cgroup.levels import level_values
from cotenant_node_executor.targets.cgroup.paths import HostApplicationPath, KubeletCgroupDriver
from cotenant_node_executor.targets.interface import CgroupVersion, Knob


def cgroup_convert(given: dict[str, Any], *, name: str) -> object:
    if given["op"] == "leveled_write":
        return _leveled_write(given)
    key = {
        "shares_to_weight": "weight",
        "weight_to_shares": "shares",
        "parse_cpu_max": "quota",
        "read_memory_limit": "limit",
        "container_dir": "dir",
        "parse_pod_id": "id",
        "parse_container_id": "id",
    }[given["op"]]
    try:
        return {key: _convert(given), "error": False}
    except ValueError:
        return {key: None, "error": True}


def _convert(given: dict[str, Any]) -> int | str:
    match given["op"]:
        case "shares_to_weight":
            return convert.shares_to_weight(convert.parse_int(str(given["shares"]), "cpu.shares"))
        case "weight_to_shares":
            return convert.weight_to_shares(convert.parse_int(str(given["weight"]), "cpu.weight"))
        case "parse_cpu_max":
            return convert.quota_of_cpu_max(given["content"])
        case "read_memory_limit":
            if given["cgroupVersion"] == "v1":
                return convert.memory_limit_v1(given["content"])
            return convert.memory_limit_v2(given["content"])
        case "container_dir":
            return paths.container_dir(KubeletCgroupDriver(given["driver"]), given["containerID"])
        case "parse_pod_id":
            return paths.pod_uid_of_dir(KubeletCgroupDriver(given["driver"]), given["basename"])
        case _:
            return paths.container_number_of_dir(KubeletCgroupDriver(given["driver"]), given["basename"])


def _leveled_write(given: dict[str, Any]) -> dict[str, object]:
    version, knob, old = CgroupVersion(given["cgroupVersion"]), Knob(given["resource"]), given["old"]
    try:
        first, second = level_values(knob, own_value(version, knob, old), given["new"].replace("max", "-1"))
    except ValueError:
        return {"afterPass1": old, "afterPass2": old, "error": True}
    down = old if first is None else kernel_text(version, knob, first)
    up = down if second is None else kernel_text(version, knob, second)
    return {"afterPass1": down, "afterPass2": up, "error": False}


def host_app_cgroup(given: dict[str, Any], *, name: str) -> object:
    application = given["hostApplication"]
    path = application.get("cgroupPath")
    where = path and HostApplicationPath(path.get("base", ""), path.get("parentDir", ""), path.get("relativePath", ""))
    layout = KubeletCgroupDriver(given["driver"])
    return {"path": paths.host_application_dir(layout, application["name"], application.get("qos") or "", where)}
