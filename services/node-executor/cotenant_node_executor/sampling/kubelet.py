"""A kubelet's policies about CPUs, from its files.

In: the texts of /var/lib/kubelet/config.yaml and cpu_manager_state. Out: ``KubeletConfig``; the CPU manager policy in force. Of
YAML only the subset of kubelet's own file is read: keys at the top with plain or quoted values, and one level of keys below;
everything else is ignored.
"""

from __future__ import annotations

import msgspec

from cotenant.domain.cpu_pools import KubeletConfig


class _State(msgspec.Struct, rename="camel"):
    policy_name: str = ""


_STATE = msgspec.json.Decoder(_State)
_TEXTS = ("cpuManagerPolicy", "topologyManagerPolicy", "topologyManagerScope", "reservedSystemCPUs")
_MAPS = ("cpuManagerPolicyOptions", "systemReserved", "kubeReserved")
_DEFAULTS = {"cpuManagerPolicy": "none", "topologyManagerPolicy": "none", "topologyManagerScope": "container"}


def parse_kubelet_config(content: str) -> KubeletConfig:
    """Return the policies; the kubelet's defaults where the file does not name them."""
    texts: dict[str, str] = {}
    maps: dict[str, dict[str, str]] = {name: {} for name in _MAPS}
    above = ""
    for line in content.split("\n"):
        key, colon, rest = line.partition(":")
        name, value = key.strip(), _plain(rest)
        if not colon or name.startswith(("#", "-")):
            continue
        if not key[:1].isspace():
            above = name
            texts[name] = value
        elif above in maps and value:
            maps[above][_plain(key)] = value
    policies = {name: texts.get(name) or _DEFAULTS.get(name, "") for name in _TEXTS}
    return KubeletConfig(
        cpu_manager_policy=policies["cpuManagerPolicy"],
        cpu_manager_policy_options=maps["cpuManagerPolicyOptions"],
        topology_manager_policy=policies["topologyManagerPolicy"],
        topology_manager_scope=policies["topologyManagerScope"],
        reserved_system_cpus=policies["reservedSystemCPUs"],
        system_reserved={**maps["systemReserved"]},
        kube_reserved={**maps["kubeReserved"]},
    )


def cpu_policy_in_force(config: str | None, state: str | None) -> str:
    """Return the CPU manager policy of a kubelet with these files: that of its state, which it wrote when it started, else
    its configuration; empty where there is no kubelet."""
    if config is None and state is None:
        return ""
    if state is not None:
        try:
            policy = _STATE.decode(state).policy_name
        except msgspec.MsgspecError:
            policy = ""
        if policy:
            return policy
    return parse_kubelet_config(config or "").cpu_manager_policy


def _plain(text: str) -> str:
    value = text.partition(" #")[0].strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value
