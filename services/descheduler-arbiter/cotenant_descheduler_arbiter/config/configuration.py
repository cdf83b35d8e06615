"""The configuration document: koord-descheduler's DeschedulerConfiguration, as far as it applies here.

    apiVersion: descheduler/v1alpha2
    kind: DeschedulerConfiguration
    deschedulingInterval: 10s
    dryRun: false
    maxNoOfPodsToEvictTotal: 20
    profiles:
    - name: default
      plugins: {balance: {enabled: [{name: LowNodeLoad}]}}
      pluginConfig:
      - name: LowNodeLoad
        args: {lowThresholds: {cpu: 45, memory: 55}, highThresholds: {cpu: 75, memory: 80}}
      - name: MigrationController
        args: {evictQPS: "10", maxMigratingPerNode: 2}

The structs hold the document as written; `policy` holds the resolved values. Fields about the Kubernetes API or leader election
are accepted and have no effect. An unknown field in a plugin's args is an error.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.model.bounds import Int32, Int64
from cotenant_descheduler_arbiter.config.scaling import IntOrPercent

_NO_ARGS = msgspec.Raw(b"{}")


class Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of the lenient parts."""


class Args(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Base of plugin arguments."""

    api_version: str = ""
    kind: str = ""


class NamedPlugin(Document, frozen=True, kw_only=True):
    """A plugin at an extension point."""

    name: str


class PluginSet(Document, frozen=True, kw_only=True):
    """Plugins of one extension point; `*` in disabled removes all defaults."""

    enabled: tuple[NamedPlugin, ...] = ()
    disabled: tuple[NamedPlugin, ...] = ()


class Plugins(Document, frozen=True, kw_only=True):
    """The four extension points."""

    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    evict: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()


class PluginConfig(Document, frozen=True, kw_only=True):
    """Arguments of one plugin, decoded by its name."""

    name: str
    args: msgspec.Raw = _NO_ARGS


class DeschedulerProfile(Document, frozen=True, kw_only=True):
    """One profile."""

    name: str = ""
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()
    node_selector: LabelSelector | None = None


class NodeLifecycleConfiguration(Document, frozen=True, kw_only=True):
    """Taints of nodes without samples, and the evictions by taint; an extension of cotenant.

    The rates (nodes a second) and thresholds have the names and defaults of kube-controller-manager's flags.
    """

    enabled: bool = True
    default_toleration_seconds: int = 300
    node_eviction_rate: float = 0.1
    secondary_node_eviction_rate: float = 0.01
    large_cluster_size_threshold: Int32 = 50
    unhealthy_zone_threshold: float = 0.55


class BackOffConfiguration(Document, frozen=True, kw_only=True):
    """The back-off of a workload after a move: base * 2^(consecutive moves - 1), at most the maximum; an extension of cotenant.

    The count restarts when twice the back-off has passed without a move.
    """

    base: str = "1m"
    maximum: str = "30m"


class DeschedulerConfiguration(Document, frozen=True, kw_only=True):
    """The whole document. Without profiles, LowNodeLoad runs with koord-descheduler's example thresholds."""

    api_version: str = "descheduler/v1alpha2"
    kind: str = "DeschedulerConfiguration"
    descheduling_interval: str = "10s"
    dry_run: bool = False
    node_selector: LabelSelector | None = None
    max_no_of_pods_to_evict_per_node: Int32 | None = None
    max_no_of_pods_to_evict_per_namespace: Int32 | None = None
    max_no_of_pods_to_evict_total: Int32 | None = None
    feature_gates: dict[str, bool] = {}
    """As `--feature-gates` of koord-descheduler."""
    profiles: tuple[DeschedulerProfile, ...] = ()
    node_lifecycle: NodeLifecycleConfiguration = NodeLifecycleConfiguration()
    workload_back_off: BackOffConfiguration = BackOffConfiguration()


class NamespaceRule(Args, frozen=True, kw_only=True):
    """Include or exclude, not both."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class PodSelector(Args, frozen=True, kw_only=True):
    """A named pod selector; without a selector it is skipped."""

    name: str = ""
    selector: LabelSelector | None = None


class AnomalyConditionArgs(Args, frozen=True, kw_only=True):
    """When a hot node is abnormal; 0 detections mean the default."""

    timeout: str = "1m"
    consecutive_abnormalities: Int32 = 5
    consecutive_normalities: Int32 = 3


class PoolArgs(Args, frozen=True, kw_only=True):
    """Arguments of a node pool; unset fields are inherited from the top level."""

    name: str = ""
    node_selector: LabelSelector | None = None
    use_deviation_thresholds: bool | None = None
    low_thresholds: dict[str, float] | None = None
    high_thresholds: dict[str, float] | None = None
    prod_low_thresholds: dict[str, float] | None = None
    prod_high_thresholds: dict[str, float] | None = None
    resource_weights: dict[str, Int64] | None = None
    anomaly_condition: AnomalyConditionArgs | None = None


class LowNodeLoadArgs(PoolArgs, frozen=True, kw_only=True):
    """Arguments of LowNodeLoad; the pool fields are those of the first pool."""

    paused: bool = False
    dry_run: bool = False
    number_of_nodes: Int32 = 0
    node_metric_expiration_seconds: Int64 = 180
    evictable_namespaces: NamespaceRule | None = None
    pod_selectors: tuple[PodSelector, ...] = ()
    node_fit: bool = True
    detector_cache_timeout: str = "5m"
    node_pools: tuple[PoolArgs, ...] = ()


class PriorityThreshold(Args, frozen=True, kw_only=True):
    """A value, or the name of a PriorityClass."""

    value: Int32 | None = None
    name: str = ""


class ObjectLimiter(Args, frozen=True, kw_only=True):
    """A token bucket per workload or namespace."""

    duration: str = "0"
    max_migrating: IntOrPercent | None = None
    burst: Int32 = 1


class ArbitrationArgs(Args, frozen=True, kw_only=True):
    """Accepted for compatibility: arbitration runs whenever something may have changed."""

    enabled: bool = True
    interval: str = "500ms"


class MigrationControllerArgs(Args, frozen=True, kw_only=True):
    """Arguments of MigrationController."""

    dry_run: bool = False
    max_concurrent_reconciles: Int32 = 1
    evict_failed_bare_pods: bool = False
    evict_all_bare_pods: bool = False
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    node_fit: bool = False
    priority_threshold: PriorityThreshold | None = None
    label_selector: LabelSelector | None = None
    namespaces: NamespaceRule | None = None
    node_selector: str = ""
    max_migrating_globally: Int32 | None = None
    max_migrating_per_node: Int32 | None = 2
    max_migrating_per_namespace: Int32 | None = None
    max_migrating_per_workload: IntOrPercent | None = None
    max_unavailable_per_workload: IntOrPercent | None = None
    skip_check_expected_replicas: bool | None = None
    skip_eviction_gates: tuple[str, ...] = ()
    object_limiters: dict[str, ObjectLimiter] | None = None
    default_job_mode: str = "EvictDirectly"
    default_job_ttl: str = msgspec.field(default="5m", name="defaultJobTTL")
    scheduler_names: tuple[str, ...] = ()
    evict_qps: str | int | float = msgspec.field(default=10, name="evictQPS")
    evict_burst: Int32 = 1
    eviction_policy: str = "Eviction"
    default_delete_options: msgspec.Raw = msgspec.Raw(b"")
    arbitration_args: ArbitrationArgs = ArbitrationArgs()
