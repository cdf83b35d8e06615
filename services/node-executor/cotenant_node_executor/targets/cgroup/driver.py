"""Selects the driver for this machine: v1, v2, or a sandbox tree with the reason where neither is writable.

The executor's root is ``<base>/cotenant/<node>``. Without a base it is created in the group that systemd delegated to this
unit (v2, Delegate=yes), or directly below the mount.
"""

from __future__ import annotations

from pathlib import Path

from cotenant_node_executor.targets.cgroup.hierarchy import delegated_group, is_namespace_root, read_hierarchies
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.cgroup.tree import check_group
from cotenant_node_executor.targets.cgroup.v1 import V1Driver
from cotenant_node_executor.targets.cgroup.v2 import V2Driver, move_to_leaf
from cotenant_node_executor.targets.interface import CgroupDriver, CgroupVersion

FAMILY = "cotenant"


def open_driver(base: str | None, node: str, *, sandbox_dir: Path | None = None) -> CgroupDriver:
    """Open the kernel's tree if it is writable, else a sandbox in ``sandbox_dir``.

    ``base`` is relative to the mount. A root left by an earlier incarnation of this node is adopted: ``groups()`` lists it.
    Raises OSError with the kernel's refusal where ``sandbox_dir`` is None, ValueError for a base or node that cannot be a
    directory name.
    """
    check_group(base or "")
    if not node or "/" in check_group(node):
        raise ValueError(f"node name {node!r} cannot be the name of a directory")
    try:
        return _open_kernel(base, f"{FAMILY}/{node}")
    except OSError as error:
        if sandbox_dir is None:
            raise
        why = f"{error.filename or 'cgroup'}: {error.strerror or error}"
        return SandboxDriver(sandbox_dir, node, why_sandbox=why)


def _open_kernel(base: str | None, own: str) -> CgroupDriver:
    hierarchies = read_hierarchies()
    if hierarchies.version is CgroupVersion.V1:
        return V1Driver(hierarchies, base or "", own)
    if hierarchies.version is None or hierarchies.v2 is None:
        raise FileNotFoundError("no mounted cgroup hierarchy has the cpu controller")
    mount = hierarchies.v2
    delegated = delegated_group(mount, hierarchies.own.get("", "")) if base is None else None
    if delegated is None and is_namespace_root(mount):
        move_to_leaf(mount)  # in a container the mount's top is an ordinary group that holds the container's processes
    return V2Driver(mount, base or delegated or "", own, delegated=delegated is not None)
