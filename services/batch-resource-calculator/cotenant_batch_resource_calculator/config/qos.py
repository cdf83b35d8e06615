"""`resource-qos-config`: kernel settings of each QoS class.

In and out: the strategy as configured; None: not set. The node fills in the defaults, not this service. Source:
Koordinator resource QoS strategy.
"""

from __future__ import annotations

import msgspec

from cotenant_batch_resource_calculator.config.json_overlay import camel_name


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    dry_run: bool | None = None
    """The node reports what it would do by this part, and does nothing."""
    enable: bool | None = None


class CPUQOS(_Part, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """Identity of the class: -1 best-effort, 0 normal, 1 and 2 latency-sensitive."""

    group_identity: int | None = None
    sched_idle: int | None = None
    core_expeller: bool | None = None
    cpu_class: str | None = None
    """Protection of the class on kernels without group identity: none, fair (the default) or realtime."""


class MemoryQOS(_Part, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """Memory protection and reclaim of the class."""

    min_limit_percent: int | None = None
    low_limit_percent: int | None = None
    throttling_percent: int | None = None
    wmark_ratio: int | None = None
    wmark_scale_permill: int | None = None
    wmark_min_adj: int | None = None
    page_cache_limit_enable: int | None = None
    page_cache_limit_sync: int | None = None
    page_cache_limit_size: int | None = None
    """In bytes."""
    priority_enable: int | None = None
    priority: int | None = None
    oom_kill_group: int | None = None


class ResctrlQOS(_Part, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """Cache ways and memory bandwidth of the class."""

    cat_range_start_percent: int | None = None
    cat_range_end_percent: int | None = None
    mba_percent: int | None = None
    mba_mbps: int | None = msgspec.field(default=None, name="mbaMBps")
    """In MB/s, of nodes whose resctrl is mounted so."""


class BlkioQOS(_Part, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """Block devices of the class; the entries are passed on unchanged."""

    blocks: list[msgspec.Raw] | None = None


class NetworkQOS(_Part, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """Network shares of the class: a number in percent, or a quantity of bits per second as text."""

    ingress_request: int | str | None = None
    ingress_limit: int | str | None = None
    egress_request: int | str | None = None
    egress_limit: int | str | None = None


class ClassQOS(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """One QoS class."""

    cpu_qos: CPUQOS | None = None
    memory_qos: MemoryQOS | None = None
    blkio_qos: BlkioQOS | None = None
    resctrl_qos: ResctrlQOS | None = None
    network_qos: NetworkQOS | None = None


class QOSPolicies(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How CPU and network QoS are enforced."""

    cpu_policy: str | None = msgspec.field(default=None, name="cpuPolicy")
    net_qos_policy: str | None = msgspec.field(default=None, name="netQOSPolicy")


class ResourceQOSStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """All classes."""

    dry_run: bool | None = None
    policies: QOSPolicies | None = None
    lsr_class: ClassQOS | None = None
    ls_class: ClassQOS | None = None
    be_class: ClassQOS | None = None
    system_class: ClassQOS | None = None
    cgroup_root: ClassQOS | None = None
