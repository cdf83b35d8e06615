"""Every kind that the API serves, in the order in which discovery lists them."""

from __future__ import annotations

from cotenant.api.definitions import Registry
from cotenant.kinds import (
    config_maps,
    elastic_quotas,
    events,
    namespaces,
    node_resource_topologies,
    nodes,
    pod_disruption_budgets,
    pod_groups,
    pods,
    priority_classes,
    reviews,
    runtime_classes,
    service_accounts,
)
from cotenant.kinds.koordinator import (
    cluster_colocation_profiles,
    cluster_network_topologies,
    devices,
    elastic_quota_profiles,
    node_metrics,
    node_slos,
    pod_migration_jobs,
    reservations,
)
from cotenant.kinds.rbac import bindings, roles
from cotenant.kinds.storage import csi_nodes, persistent_volume_claims, persistent_volumes, storage_classes

REGISTRY = Registry(
    (
        pods.DEFINITION,
        nodes.DEFINITION,
        config_maps.DEFINITION,
        namespaces.DEFINITION,
        service_accounts.DEFINITION,
        events.DEFINITION,
        pod_disruption_budgets.DEFINITION,
        priority_classes.DEFINITION,
        runtime_classes.DEFINITION,
        persistent_volume_claims.DEFINITION,
        persistent_volumes.DEFINITION,
        storage_classes.DEFINITION,
        csi_nodes.DEFINITION,
        node_metrics.DEFINITION,
        node_slos.DEFINITION,
        pod_migration_jobs.DEFINITION,
        reservations.DEFINITION,
        devices.DEFINITION,
        elastic_quotas.DEFINITION,
        pod_groups.DEFINITION,
        cluster_network_topologies.DEFINITION,
        elastic_quota_profiles.DEFINITION,
        cluster_colocation_profiles.DEFINITION,
        node_resource_topologies.DEFINITION,
        roles.ROLE,
        bindings.ROLE_BINDING,
        roles.CLUSTER_ROLE,
        bindings.CLUSTER_ROLE_BINDING,
        *reviews.DEFINITIONS,
    )
)
