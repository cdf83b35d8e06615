"""The admission functions in the order in which they run: mutators first, then every validator.

In: a review. Out: the document to store with notes of what was changed, or all field errors. To add a rule: write a
small pure function in a file of its own and name it here, for new pods, for live ones, or for the other kinds.
"""

from __future__ import annotations

from typing import NamedTuple

from cotenant.api.objects.pod import Pod
from cotenant.api.validation.fields import FieldError
from cotenant_gateway.admission.extended_resources import write_extended_resource_spec
from cotenant_gateway.admission.metadata_rules import metadata_is_valid
from cotenant_gateway.admission.node_configuration import node_configuration_is_valid
from cotenant_gateway.admission.objects_rules import object_is_valid
from cotenant_gateway.admission.pod_quotas import preemptible_label_stays, quota_of_pod_is_a_leaf
from cotenant_gateway.admission.pods import pod_is_valid, pod_update_is_allowed
from cotenant_gateway.admission.priority import resolve_priority
from cotenant_gateway.admission.profile_rules import colocation_profile_is_valid
from cotenant_gateway.admission.profiles import apply_colocation_profiles, translate_again
from cotenant_gateway.admission.quota_affinity import keep_on_nodes_of_tree
from cotenant_gateway.admission.quotas import complete_weight, inherit_tree, quota_is_valid
from cotenant_gateway.admission.review import Mutator, Review, Validator
from cotenant_gateway.admission.runtime_class import merge_runtime_class
from cotenant_gateway.admission.unresolved import unresolved_classes


class Rules(NamedTuple):
    """What admission does with one sort of objects."""

    mutators: tuple[Mutator, ...]
    validators: tuple[Validator, ...]


NEW_PODS = Rules(
    (
        resolve_priority,
        merge_runtime_class,
        apply_colocation_profiles,
        write_extended_resource_spec,
        keep_on_nodes_of_tree,
    ),
    (metadata_is_valid, unresolved_classes, pod_is_valid, quota_of_pod_is_a_leaf),
)
LIVE_PODS = Rules(
    (resolve_priority, merge_runtime_class, translate_again),
    (metadata_is_valid, pod_is_valid, pod_update_is_allowed, quota_of_pod_is_a_leaf, preemptible_label_stays),
)
OTHERS = Rules(
    (inherit_tree, complete_weight),
    (metadata_is_valid, object_is_valid, quota_is_valid, colocation_profile_is_valid, node_configuration_is_valid),
)


def admit(review: Review) -> list[FieldError]:
    """Let every mutator change the review's document, then return all field errors of what has come out."""
    rules = OTHERS if not isinstance(review.view, Pod) else NEW_PODS if review.old is None else LIVE_PODS
    for mutate in rules.mutators:
        made = mutate(review)
        if made is not None:
            review.take(made)
    found: list[FieldError] = []
    for validate in rules.validators:
        found += validate(review)
    return found
