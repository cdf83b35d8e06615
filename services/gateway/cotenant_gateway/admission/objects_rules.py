"""The other kinds, each by its own rules."""

from __future__ import annotations

from cotenant.api.objects.node import Node
from cotenant.api.objects.policies import (
    ConfigMap,
    PodDisruptionBudget,
    PodMigrationJob,
    PriorityClassObject,
    RuntimeClass,
)
from cotenant.api.validation.fields import FieldError
from cotenant.api.validation.policies import (
    budget_errors,
    config_map_errors,
    migration_job_errors,
    node_errors,
    priority_class_errors,
    runtime_class_errors,
)
from cotenant_gateway.admission.review import Review


def object_is_valid(review: Review) -> list[FieldError]:
    """Rules of the object's kind; kinds without rules of their own are carried as they are."""
    view = review.view
    if isinstance(view, Node):
        return node_errors(view)
    if isinstance(view, ConfigMap):
        return config_map_errors(view)
    if isinstance(view, PodDisruptionBudget):
        return budget_errors(view)
    if isinstance(view, PriorityClassObject):
        return priority_class_errors(view, review.old_view(PriorityClassObject))
    if isinstance(view, RuntimeClass):
        return runtime_class_errors(view, review.old_view(RuntimeClass))
    if isinstance(view, PodMigrationJob):
        return migration_job_errors(view)
    return []
