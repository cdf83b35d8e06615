"""The limits of a descheduler's configuration, read from the text in its start marker: for promise 6.

In: koord-descheduler's DeschedulerConfiguration as JSON. Out: the limits of a cycle, of concurrent migrations, and of evictions
within a time. None: unlimited. Defaults are koord-descheduler's.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

CYCLE_SECONDS = 10
LIMITER_SECONDS = 300
"""The default object limiter: per workload, within five minutes."""
LIMITER_BURST = 1
EVICT_QPS = 10
EVICT_BURST = 1


class EvictionLimits(msgspec.Struct, frozen=True):
    """The number of pods, by kind of group."""

    cycle_per_node: int | None
    cycle_per_namespace: int | None
    cycle_total: int | None
    moving_per_node: int | None
    moving_per_namespace: int | None
    moving_globally: int | None


class _Args(msgspec.Struct, frozen=True, rename="camel"):
    max_migrating_per_node: int | None = 2
    max_migrating_per_namespace: int | None = None
    max_migrating_globally: int | None = None


class _PluginConfig(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Profile(msgspec.Struct, frozen=True, rename="camel"):
    plugin_config: tuple[_PluginConfig, ...] = ()


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    max_no_of_pods_to_evict_per_node: int | None = None
    max_no_of_pods_to_evict_per_namespace: int | None = None
    max_no_of_pods_to_evict_total: int | None = None
    profiles: tuple[_Profile, ...] = ()


@lru_cache(maxsize=64)
def limits_of(config_text: str) -> EvictionLimits:
    """The limits that a configuration states."""
    document = msgspec.json.decode(config_text, type=_Document)
    given = [plugin.args for profile in document.profiles for plugin in profile.plugin_config]
    named = [plugin.name for profile in document.profiles for plugin in profile.plugin_config]
    args = dict(zip(named, given, strict=True)).get("MigrationController")
    moving = msgspec.json.decode(args, type=_Args) if args is not None else _Args()
    return EvictionLimits(
        cycle_per_node=document.max_no_of_pods_to_evict_per_node,
        cycle_per_namespace=document.max_no_of_pods_to_evict_per_namespace,
        cycle_total=document.max_no_of_pods_to_evict_total,
        moving_per_node=moving.max_migrating_per_node or None,
        moving_per_namespace=moving.max_migrating_per_namespace or None,
        moving_globally=moving.max_migrating_globally or None,
    )


def of_workload(replicas: int) -> int:
    """How many pods of a workload may migrate at once if nothing is configured: a tenth of more than ten, two of four to ten,
    else one."""
    return replicas // 10 if replicas > 10 else 2 if replicas >= 4 else 1
