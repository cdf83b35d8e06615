"""The public names of elastic quotas: built-in quotas, labels and annotations, with Koordinator's spelling."""

ROOT = "koordinator-root-quota"
SYSTEM = "koordinator-system-quota"
DEFAULT = "koordinator-default-quota"
BUILT_IN_QUOTAS = frozenset({ROOT, SYSTEM, DEFAULT})
BUILT_IN_NAMESPACE = "koordinator-system"

DEFAULT_TREE = ""

BUILT_IN_MAX = (2**63 - 1) // 5
"""Max of the default and system quota in cores and in bytes, unless an object or an argument sets it."""

PREFIX = "quota.scheduling.koordinator.sh/"
LABEL_QUOTA = PREFIX + "name"
LABEL_PREEMPTIBLE = PREFIX + "preemptible"
LABEL_PARENT = PREFIX + "parent"
LABEL_IS_PARENT = PREFIX + "is-parent"
LABEL_LENDS = PREFIX + "allow-lent-resource"
LABEL_TREE = PREFIX + "tree-id"
LABEL_IS_ROOT = PREFIX + "is-root"
LABEL_IGNORE_DEFAULT_TREE = PREFIX + "ignore-default-tree"
LABEL_FORCE_UPDATE = PREFIX + "allow-force-update"
ANNOTATION_SHARED_WEIGHT = PREFIX + "shared-weight"
ANNOTATION_NAMESPACES = PREFIX + "namespaces"
ANNOTATION_TOTAL = PREFIX + "total-resource"
ANNOTATION_GUARANTEED = PREFIX + "guaranteed"
ANNOTATION_STRICT_KEYS = PREFIX + "max-strict-check-resource-keys"
ANNOTATION_UNSCHEDULABLE = PREFIX + "unschedulable-resource"
ANNOTATION_RESOURCE_KEYS = PREFIX + "resource-keys"
ANNOTATION_ADMISSION = PREFIX + "admission"
ANNOTATION_CHILD_REQUEST = PREFIX + "child-request"
LABEL_PROFILE = PREFIX + "profile"
