"""Targets of strategies: a place (the configured object) and an attribute (one of its properties).

| place | attributes | value |
|---|---|---|
| `str`, a control group below the executor's root | `Knob` | text in cgroup v1's units |
| `Sysctl`, a file below /proc/sys | `SysctlAttribute` | the file's text |
| `SysFile`, a file below /sys | `SysFileAttribute` | the file's text; words of it |
| `Thread` | `ThreadAttribute` | policy `other`, `batch` or `idle`; affinity as a CPU list; slice in ns; cookie: a thread's id |
| `OomScore`, the processes of a control group | `OomScoreAttribute` | -1000 .. 1000 |
| `RealtimeThreads`, the threads of a control group | `RealtimeAttribute` | `realtime` or `fair` |
| `TcClass`, an HTB class of a network device | `TcAttribute` | bits a second |
| `TcTree`, the HTB classes of a network device | `TcTreeAttribute` | `id prio rate ceil` with semicolons |
| `EgressClass`, egress of a control group | `EgressAttribute` | an HTB class; "" for none |
| `TerwayFile`, a file of terway-qos | `TerwayAttribute` | its text; "" for no file |
| `Processes`, all of a control group | `ProcessAttribute` | name of their core-scheduling group; "" for none |
| `ResctrlGroup`, a group of the resctrl file system | `ResctrlAttribute` | schemata lines; task ids or groups with commas |

Pure: the cgroup drivers and `other.accessors` read and write.

Over 300 lines: most of it is lists of attributes.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Knob(Enum):
    """A logical knob; its value is the file name on cgroup v1, or v2's where v1 has no such file."""

    # Members are singletons and keys of every table in a cycle: hashing by identity is ten times as fast.
    __hash__ = object.__hash__

    CPU_SHARES = "cpu.shares"
    CPU_QUOTA = "cpu.cfs_quota_us"
    CPU_PERIOD = "cpu.cfs_period_us"
    CPU_BURST = "cpu.cfs_burst_us"
    CPU_IDLE = "cpu.idle"
    CPU_BVT = "cpu.bvt_warp_ns"
    CPU_UCLAMP_MIN = "cpu.uclamp.min"
    CPU_UCLAMP_MAX = "cpu.uclamp.max"
    CPU_RT_PERIOD = "cpu.rt_period_us"
    CPU_RT_RUNTIME = "cpu.rt_runtime_us"
    CPUSET_CPUS = "cpuset.cpus"
    CPUSET_MEMS = "cpuset.mems"
    MEMORY_LIMIT = "memory.limit_in_bytes"
    MEMORY_MIN = "memory.min"
    MEMORY_LOW = "memory.low"
    MEMORY_HIGH = "memory.high"
    MEMORY_WMARK_RATIO = "memory.wmark_ratio"
    MEMORY_WMARK_SCALE_FACTOR = "memory.wmark_scale_factor"
    MEMORY_WMARK_MIN_ADJ = "memory.wmark_min_adj"
    MEMORY_PRIORITY = "memory.priority"
    MEMORY_USE_PRIORITY_OOM = "memory.use_priority_oom"
    MEMORY_OOM_GROUP = "memory.oom.group"
    MEMORY_PAGECACHE_SIZE = "memory.pagecache_limit.size"
    MEMORY_PAGECACHE_SYNC = "memory.pagecache_limit.sync"
    MEMORY_PAGECACHE_ENABLE = "memory.pagecache_limit.enable"
    BLKIO_READ_BPS = "blkio.throttle.read_bps_device"
    BLKIO_WRITE_BPS = "blkio.throttle.write_bps_device"
    BLKIO_READ_IOPS = "blkio.throttle.read_iops_device"
    BLKIO_WRITE_IOPS = "blkio.throttle.write_iops_device"
    BLKIO_COST_WEIGHT = "blkio.cost.weight"
    BLKIO_COST_QOS = "blkio.cost.qos"
    BLKIO_COST_MODEL = "blkio.cost.model"
    IO_MAX = "io.max"
    IO_WEIGHT = "io.weight"
    IO_LATENCY = "io.latency"
    PIDS_MAX = "pids.max"


class Sysctl(Struct, frozen=True, cache_hash=True):
    """A kernel parameter by its path below /proc/sys, e.g. "kernel/sched_group_identity_enabled"."""

    name: str


class SysctlAttribute(Enum):
    """The single attribute of a sysctl."""

    __hash__ = object.__hash__
    VALUE = "value"


class SysFile(Struct, frozen=True, cache_hash=True):
    """A file below /sys, e.g. "kernel/mm/memcg_reaper/reap_background"."""

    name: str


class SysFileAttribute(Enum):
    """`VALUE` is the file's text; `WORDS` are words that the file shall have among others, each written by itself."""

    __hash__ = object.__hash__
    VALUE = "value"
    WORDS = "words"


class Thread(Struct, frozen=True, cache_hash=True):
    """One thread of this host, by thread id."""

    tid: int


class ThreadAttribute(Enum):
    """A scheduling attribute of a thread."""

    __hash__ = object.__hash__
    POLICY = "policy"
    AFFINITY = "affinity"
    SLICE = "slice"
    COOKIE = "cookie"


class Processes(Struct, frozen=True, cache_hash=True):
    """The processes of a control group below the executor's root, including later ones."""

    group: str


class ProcessAttribute(Enum):
    """Attributes of processes. Those of one core-scheduling group share a cookie."""

    __hash__ = object.__hash__
    CORE_GROUP = "core-group"


class OomScore(Struct, frozen=True, cache_hash=True):
    """The `oom_score_adj` of all processes of a control group below the executor's root."""

    group: str


class OomScoreAttribute(Enum):
    """The single attribute."""

    __hash__ = object.__hash__
    ADJUSTMENT = "oom_score_adj"


class RealtimeThreads(Struct, frozen=True, cache_hash=True):
    """The threads of a control group below the executor's root, including later ones."""

    group: str


class RealtimeAttribute(Enum):
    """The single attribute: their scheduling class."""

    __hash__ = object.__hash__
    CLASS = "class"


class TcClass(Struct, frozen=True, cache_hash=True):
    """An HTB class by its device and class id, e.g. "eth0" and "1:10"."""

    device: str
    classid: str


class TcAttribute(Enum):
    """A rate of a class: the guaranteed one, and the ceiling to which it may borrow."""

    __hash__ = object.__hash__
    RATE = "rate"
    CEIL = "ceil"


class TcTree(Struct, frozen=True, cache_hash=True):
    """The HTB hierarchy of a network device, e.g. "eth0"."""

    device: str


class TcTreeAttribute(Enum):
    """The single attribute: all classes."""

    __hash__ = object.__hash__
    CLASSES = "classes"


class EgressClass(Struct, frozen=True, cache_hash=True):
    """Egress of the processes of a control group below the executor's root."""

    group: str


class EgressAttribute(Enum):
    """The single attribute: the traffic class."""

    __hash__ = object.__hash__
    CLASS = "traffic-class"


class TerwayFile(Struct, frozen=True, cache_hash=True):
    """A file of terway-qos by its name, e.g. "pod.json"."""

    name: str


class TerwayAttribute(Enum):
    """The single attribute."""

    __hash__ = object.__hash__
    TEXT = "text"


class ResctrlGroup(Struct, frozen=True, cache_hash=True):
    """A resctrl group by its name below the mount."""

    name: str


class ResctrlAttribute(Enum):
    # Attributes are written in the order of their names: threads move into a group that has its schemata.
    """`schemata` is rewritten line by line; `tasks` lists thread ids to add to the group, others stay; `threads-of` lists
    groups below the executor's root whose threads belong to the group, including later ones."""

    __hash__ = object.__hash__
    SCHEMATA = "schemata"
    TASKS = "tasks"
    CONTROL_GROUPS = "threads-of"


NonCgroup = (
    Sysctl
    | SysFile
    | Thread
    | Processes
    | OomScore
    | ResctrlGroup
    | RealtimeThreads
    | TcClass
    | TcTree
    | EgressClass
    | TerwayFile
)
Place = str | NonCgroup
Attribute = (
    Knob
    | SysctlAttribute
    | SysFileAttribute
    | ThreadAttribute
    | ProcessAttribute
    | OomScoreAttribute
    | ResctrlAttribute
    | RealtimeAttribute
    | TcAttribute
    | TcTreeAttribute
    | EgressAttribute
    | TerwayAttribute
)
ATTRIBUTES: dict[type, type[Attribute]] = {
    str: Knob,
    Sysctl: SysctlAttribute,
    SysFile: SysFileAttribute,
    Thread: ThreadAttribute,
    Processes: ProcessAttribute,
    OomScore: OomScoreAttribute,
    ResctrlGroup: ResctrlAttribute,
    RealtimeThreads: RealtimeAttribute,
    TcClass: TcAttribute,
    TcTree: TcTreeAttribute,
    EgressClass: EgressAttribute,
    TerwayFile: TerwayAttribute,
}
"""The attributes of each kind of place."""

INITIAL_VALUES: dict[Attribute, str] = {
    Knob.CPU_SHARES: "1024",
    Knob.CPU_QUOTA: "-1",
    Knob.CPU_BURST: "0",
    Knob.CPU_IDLE: "0",
    Knob.CPU_BVT: "0",
    Knob.CPU_RT_RUNTIME: "0",
    Knob.MEMORY_LIMIT: "-1",
    Knob.MEMORY_MIN: "0",
    Knob.MEMORY_LOW: "0",
    Knob.MEMORY_HIGH: "-1",
    Knob.MEMORY_WMARK_RATIO: "0",
    Knob.MEMORY_WMARK_SCALE_FACTOR: "50",
    Knob.MEMORY_WMARK_MIN_ADJ: "0",
    Knob.MEMORY_PRIORITY: "0",
    Knob.MEMORY_USE_PRIORITY_OOM: "0",
    Knob.MEMORY_OOM_GROUP: "0",
    Knob.MEMORY_PAGECACHE_SIZE: "0",
    Knob.MEMORY_PAGECACHE_SYNC: "0",
    Knob.MEMORY_PAGECACHE_ENABLE: "0",
    ThreadAttribute.POLICY: "other",
    ThreadAttribute.SLICE: "0",
    ThreadAttribute.COOKIE: "0",
    ProcessAttribute.CORE_GROUP: "",
    RealtimeAttribute.CLASS: "fair",
    TcTreeAttribute.CLASSES: "",
    EgressAttribute.CLASS: "",
    TerwayAttribute.TEXT: "",
}
"""Values of a new group or thread; a reset writes these."""


def place_text(place: Place) -> str:
    """A place as text for events and logs; "" is the root group."""
    match place:
        case str():
            return place
        case Sysctl():
            return f"sysctl/{place.name}"
        case SysFile():
            return f"sys/{place.name}"
        case Thread():
            return f"thread/{place.tid}"
        case Processes():
            return f"processes/{place.group}"
        case OomScore():
            return f"oom/{place.group}"
        case RealtimeThreads():
            return f"realtime/{place.group}"
        case ResctrlGroup():
            return f"resctrl/{place.name}"
        case TcTree():
            return f"tc/{place.device}"
        case EgressClass():
            return f"egress/{place.group}"
        case TerwayFile():
            return f"terway/{place.name}"
        case TcClass():
            return f"tc/{place.device}/{place.classid}"
