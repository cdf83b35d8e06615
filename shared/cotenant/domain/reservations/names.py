"""Labels and annotations of reservations, as Koordinator names them."""

from __future__ import annotations

DOMAIN = "scheduling.koordinator.sh"

# Labels.
LABEL_ORDER = f"{DOMAIN}/reservation-order"
LABEL_PRE_ALLOCATION_REQUIRED = f"{DOMAIN}/pre-allocation-required"
LABEL_IGNORED = f"{DOMAIN}/reservation-ignored"
LABEL_OPERATING_MODE = f"{DOMAIN}/operating-mode"

# Annotations of pods.
ANNOTATION_AFFINITY = f"{DOMAIN}/reservation-affinity"
ANNOTATION_EXACT_MATCH = f"{DOMAIN}/exact-match-reservation"
ANNOTATION_ALLOCATED = f"{DOMAIN}/reservation-allocated"

# Annotations of pods that act as reservations.
ANNOTATION_OWNERS = f"{DOMAIN}/reservation-owners"
ANNOTATION_CURRENT_OWNER = f"{DOMAIN}/reservation-current-owner"

# Annotations of reservations.
ANNOTATION_RESTRICTED_OPTIONS = f"{DOMAIN}/reservation-restricted-options"
ANNOTATION_RESIZE_ALLOCATABLE = f"{DOMAIN}/reservation-resize-allocatable"

# Annotations of the reserve pod.
ANNOTATION_RESERVE_POD = f"{DOMAIN}/reserve-pod"
ANNOTATION_RESERVATION_NAME = f"{DOMAIN}/reservation-name"
ANNOTATION_RESERVATION_NODE = f"{DOMAIN}/reservation-node"

POLICY_DEFAULT = ""
POLICY_ALIGNED = "Aligned"
POLICY_RESTRICTED = "Restricted"
POLICIES = (POLICY_DEFAULT, POLICY_ALIGNED, POLICY_RESTRICTED)

HIGHEST_PRIORITY = 2_147_483_647
"""Of a reserve pod that names none."""
