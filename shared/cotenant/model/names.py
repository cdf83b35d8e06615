"""The names that users write: labels, annotations, resource names. Spelled as Koordinator and Kubernetes spell them."""

from __future__ import annotations

# Resources (integers: cpu in milli-cores, batch-cpu and mid-cpu in units of one milli-core, memory in bytes).
CPU = "cpu"
MEMORY = "memory"
RESOURCE_PODS = "pods"
BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
MID_CPU = "kubernetes.io/mid-cpu"
MID_MEMORY = "kubernetes.io/mid-memory"
GPU = "koordinator.sh/gpu"
GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
GPU_SHARED = "koordinator.sh/gpu.shared"
RDMA = "koordinator.sh/rdma"
FPGA = "koordinator.sh/fpga"
NPU_CORE = "huawei.com/npu-core"

# Pod labels.
LABEL_QOS_CLASS = "koordinator.sh/qosClass"
LABEL_PRIORITY_CLASS = "koordinator.sh/priority-class"
LABEL_PRIORITY = "koordinator.sh/priority"
LABEL_PREEMPTION_POLICY = "scheduling.koordinator.sh/preemption-policy"
"""`Never` or `PreemptLowerPriority`: in place of the pod's `spec.preemptionPolicy`."""
LABEL_SCHEDULER_NAME = "scheduling.koordinator.sh/scheduler-name"
"""The scheduler of a pod, in place of `spec.schedulerName`."""
LABEL_QUOTA_NAME = "quota.scheduling.koordinator.sh/name"

# Pod annotations.
ANNOTATION_EXTENDED_RESOURCE_SPEC = "node.koordinator.sh/extended-resource-spec"
ANNOTATION_RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
ANNOTATION_COLOCATION_PROFILES = "cotenant.io/colocation-profiles"
ANNOTATION_EVICTED_BY = "cotenant.io/evicted-by"
ANNOTATION_EVICT_REASON = "koordinator.sh/evict-reason"
ANNOTATION_EVICT_TRIGGER = "koordinator.sh/evict-trigger"
ANNOTATION_SOFT_EVICTION = "scheduling.koordinator.sh/soft-eviction"
ANNOTATION_SCHEDULING_HINT = "scheduling.koordinator.sh/scheduling-hint"
ANNOTATION_INTERNAL_SCHEDULING_HINT = "internal.scheduling.koordinator.sh/scheduling-hint"
ANNOTATION_TTL_AFTER_FINISHED = "cotenant.io/ttl-seconds-after-finished"
"""On a pod: it is deleted so many seconds after it finished, as `spec.ttlSecondsAfterFinished` does with Jobs."""

# ClusterColocationProfile annotations and labels.
ANNOTATION_SKIP_UPDATE_RESOURCES = "config.koordinator.sh/skip-update-resources"
LABEL_CONTROLLER_MANAGED = "config.koordinator.sh/controller-managed"

# Node annotations and labels.
ANNOTATION_NODE_RESERVATION = "node.koordinator.sh/reservation"
ANNOTATION_COLOCATION_STRATEGY = "node.koordinator.sh/colocation-strategy"
ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE = "node.koordinator.sh/originExtendedAllocatable"
ANNOTATION_THIRD_PARTY_ALLOCATIONS = "node.koordinator.sh/thirdPartyAllocations"
ANNOTATION_CPU_NORMALIZATION_RATIO = "node.koordinator.sh/cpu-normalization-ratio"
ANNOTATION_AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"
ANNOTATION_RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
LABEL_CPU_NORMALIZATION_ENABLED = "node.koordinator.sh/cpu-normalization-enabled"
ANNOTATION_SYSTEM_QOS_RESOURCE = "node.koordinator.sh/system-qos-resource"
LABEL_NUMA_RESERVATION = "node.koordinator.sh/enable-numa-reservation"
LABEL_CPU_RECLAIM_RATIO = "node.koordinator.sh/cpu-reclaim-ratio"
LABEL_MEMORY_RECLAIM_RATIO = "node.koordinator.sh/memory-reclaim-ratio"
LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_REGION = "topology.kubernetes.io/region"
LABEL_ZONE = "topology.kubernetes.io/zone"

# NodeResourceTopology annotations, each a JSON text.
ANNOTATION_CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info"
ANNOTATION_CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
ANNOTATION_CPU_SHARED_POOLS = "node.koordinator.sh/cpu-shared-pools"
ANNOTATION_BE_CPU_SHARED_POOLS = "node.koordinator.sh/be-cpu-shared-pools"
ANNOTATION_POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
ANNOTATION_KUBELET_CPU_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"

# The process runtime: the label and the taint of a node that runs processes only, and the RuntimeClass that asks for it.
RUNTIME_KEY = "cotenant.io/runtime"
RUNTIME_PROCESS = "process"
SIMULATED_KEY = "cotenant.io/simulated"

# Schedulers whose pods are ours.
SCHEDULER_NAMES = frozenset({"default-scheduler", "koord-scheduler", "cotenant"})

SLO_CONFIG_NAMESPACE = "koordinator-system"
SLO_CONFIG_NAME = "slo-controller-config"
