"""System config: the kernel's memory reserves and a vendor's switches.

In: the NodeSLO's `systemStrategy`, the node's memory in bytes. Out: values of sysctls and of files below /sys.

| field | file | value | valid |
|---|---|---|---|
| minFreeKbytesFactor | vm/min_free_kbytes | memory in KiB * factor // 10000 | 10240..10485760 |
| watermarkScaleFactor | vm/watermark_scale_factor | as stated | 10..400 |
| memcgReapBackGround | kernel/mm/memcg_reaper/reap_background | as stated | 0..1 |
| schedIdleSaverWmark | kernel/sched_idle_saver_wmark | as stated | at least 0 |
| schedGroupIdentityEnabled | kernel/sched_group_identity_enabled | as stated | 0..1 |
| schedFeatures | kernel/debug/sched_features | each `NAME` or `NO_NAME` | |
| pageCacheLimitEnabled | kernel/mm/pagecache_limit/enabled | 1 or true, 0 or false | 0..1 |

A file whose value is unset or out of range is not changed (no clamping). A file that this kernel lacks is skipped. A value
that is no longer stated is restored to the file's former one (`targets.other.held`). Source: system config, koordlet rule as of
v1.7, and pageCacheLimitEnabled of its newest version.
"""

from __future__ import annotations

import re

from msgspec import Struct

from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.strategies.sections import SYSTEM, SectionShape, camel_name, lower_name, section
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Desired, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place, Sysctl, SysctlAttribute, SysFile, SysFileAttribute

NAME = "system-config"
MIN_FREE = Sysctl("vm/min_free_kbytes")
WATERMARK = Sysctl("vm/watermark_scale_factor")
IDLE_SAVER = Sysctl("kernel/sched_idle_saver_wmark")
GROUP_IDENTITY = Sysctl("kernel/sched_group_identity_enabled")
REAPER = SysFile("kernel/mm/memcg_reaper/reap_background")
FEATURES = SysFile("kernel/debug/sched_features")
PAGE_CACHE_LIMITS = SysFile("kernel/mm/pagecache_limit/enabled")
"""Of the whole machine, on Anolis' kernel: without it no group's limit counts."""
_STATED: dict[Place, str] = {
    MIN_FREE: "min_free_kbytes_factor",
    WATERMARK: "watermark_scale_factor",
    REAPER: "memcg_reap_back_ground",
    IDLE_SAVER: "sched_idle_saver_wmark",
    GROUP_IDENTITY: "sched_group_identity_enabled",
    FEATURES: "sched_features",
    PAGE_CACHE_LIMITS: "page_cache_limit_enabled",
}
"""The field that a file follows."""
_FEATURE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
MAX_FEATURES = 64


class SystemStrategy(Struct, frozen=True, kw_only=True, rename=lower_name):
    """The section; None: unset."""

    min_free_kbytes_factor: int | None = None
    watermark_scale_factor: int | None = None
    memcg_reap_back_ground: int | None = None
    sched_idle_saver_wmark: int | None = None
    sched_group_identity_enabled: int | None = None
    sched_features: dict[str, bool] | None = None
    page_cache_limit_enabled: int | bool | None = None


def system_values(config: SystemStrategy, memory_bytes: int) -> dict[Place, str]:
    """Return the value of each file that is to be set, on a node with this much memory; none without memory."""
    if memory_bytes <= 0:
        return {}
    factor = config.min_free_kbytes_factor
    numbers: tuple[tuple[Place, int | None, int, int], ...] = (
        (MIN_FREE, None if factor is None else memory_bytes // 1024 * factor // 10000, 10240, 10485760),
        (WATERMARK, config.watermark_scale_factor, 10, 400),
        (REAPER, config.memcg_reap_back_ground, 0, 1),
        (IDLE_SAVER, config.sched_idle_saver_wmark, 0, 2**31 - 1),
        (GROUP_IDENTITY, config.sched_group_identity_enabled, 0, 1),
        (PAGE_CACHE_LIMITS, config.page_cache_limit_enabled, 0, 1),
    )
    found = {place: str(int(value)) for place, value, low, high in numbers if value is not None and low <= value <= high}
    # Names come in lower case from the section, and the kernel's are in upper case.
    features = {name.upper(): on for name, on in (config.sched_features or {}).items()}
    words = [name if on else f"NO_{name}" for name, on in sorted(features.items()) if _FEATURE.fullmatch(name)]
    if words:
        found[FEATURES] = " ".join(words[:MAX_FEATURES])
    return found


@by_identity
def _config(slo: NodeSLORendered) -> SystemStrategy:
    return section(slo, SYSTEM, SystemStrategy)


def decide(situation: Situation, _memory: Struct | None) -> StrategyDecision:
    """The files that the NodeSLO states."""
    if situation.slo is None:
        return StrategyDecision()
    config = _config(situation.slo)
    values = system_values(config, situation.node.memory_bytes)
    return StrategyDecision({place: (_desired(place, text, config),) for place, text in values.items()})


def _desired(place: Place, text: str, config: SystemStrategy) -> Desired:
    name = _STATED[place]
    stated = getattr(config, name)
    why = f"systemStrategy.{camel_name(name)}" + ("" if isinstance(stated, dict) else f" {int(stated)}")
    if isinstance(place, Sysctl):
        return Desired(SysctlAttribute.VALUE, text, NAME, why)
    return Desired(SysFileAttribute.WORDS if place == FEATURES else SysFileAttribute.VALUE, text, NAME, why)


STRATEGY = Strategy(
    name=NAME,
    topic="system-config",
    sets=(SysctlAttribute.VALUE, SysFileAttribute.VALUE, SysFileAttribute.WORDS),
    decide=decide,
    section=SYSTEM,
    reads=(SectionShape((SYSTEM,), SystemStrategy),),
)
