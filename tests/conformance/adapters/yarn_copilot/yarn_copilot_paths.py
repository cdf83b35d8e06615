"""yarn-copilot vectors of where a host application's control group is, by the executor's own rule."""

from __future__ import annotations

from typing import Any

from cotenant_node_executor.targets.cgroup import paths
from cotenant_node_executor.targets.cgroup.paths import HostApplicationPath, KubeletCgroupDriver


def host_app_cgroup_path(given: dict[str, Any], *, name: str) -> object:
    application = given["application"]
    if application is None:
        return {layout.value: "" for layout in KubeletCgroupDriver}
    path = application.get("cgroupPath")
    where = path and HostApplicationPath(path.get("base", ""), path.get("parentDir", ""), path.get("relativePath", ""))
    return {
        layout.value: paths.host_application_dir(layout, application["name"], application.get("qos") or "", where)
        for layout in KubeletCgroupDriver
    }
