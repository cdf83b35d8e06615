"""The admission functions in the order in which they run: mutators first, then every validator.

In: a review. Out: the document to store with notes of what was changed, or all field errors. To add a rule: write a
small pure function in a file of its own and name it here, for pods (which are created most often) or for the other kinds.
"""

from __future__ import annotations

from cotenant.objects.pod import Pod
from cotenant.objects.validation import FieldError
from cotenant_gateway.admission.extended_resources import write_extended_resource_spec
from cotenant_gateway.admission.metadata_rules import metadata_is_valid, owners_are_named
from cotenant_gateway.admission.namespaces import namespace_refusal
from cotenant_gateway.admission.node_configuration import node_configuration_is_valid
from cotenant_gateway.admission.objects_rules import object_is_valid
from cotenant_gateway.admission.pod_quotas import preemptible_label_stays, quota_of_pod_is_a_leaf
from cotenant_gateway.admission.pods import pod_is_valid, pod_update_is_allowed
from cotenant_gateway.admission.priority import resolve_priority
from cotenant_gateway.admission.profile_rules import colocation_profile_is_valid
from cotenant_gateway.admission.profiles import apply_colocation_profiles
from cotenant_gateway.admission.quota_affinity import keep_on_nodes_of_tree
from cotenant_gateway.admission.quotas import inherit_tree, quota_is_valid
from cotenant_gateway.admission.review import Mutator, Review, Validator
from cotenant_gateway.admission.runtime_class import merge_runtime_class
from cotenant_gateway.admission.unresolved import unresolved_classes

POD_MUTATORS: tuple[Mutator, ...] = (
    resolve_priority,
    merge_runtime_class,
    apply_colocation_profiles,
    write_extended_resource_spec,
    keep_on_nodes_of_tree,
)
OTHER_MUTATORS: tuple[Mutator, ...] = (inherit_tree,)

EVERY_VALIDATOR: tuple[Validator, ...] = (metadata_is_valid, owners_are_named)
POD_VALIDATORS: tuple[Validator, ...] = (
    *EVERY_VALIDATOR,
    unresolved_classes,
    pod_is_valid,
    pod_update_is_allowed,
    quota_of_pod_is_a_leaf,
    preemptible_label_stays,
)
OTHER_VALIDATORS: tuple[Validator, ...] = (
    *EVERY_VALIDATOR,
    object_is_valid,
    quota_is_valid,
    colocation_profile_is_valid,
    node_configuration_is_valid,
)

REFUSALS = (namespace_refusal,)
"""Functions that forbid (403, 404) rather than find fault with a field; they run first."""


def run_mutators(review: Review) -> None:
    """Let every mutator of the kind change the review's document."""
    for mutate in POD_MUTATORS if isinstance(review.view, Pod) else OTHER_MUTATORS:
        made = mutate(review)
        if made is not None:
            review.take(made)


def run_validators(review: Review) -> list[FieldError]:
    """Return all field errors."""
    validators = POD_VALIDATORS if isinstance(review.view, Pod) else OTHER_VALIDATORS
    return [error for validate in validators for error in validate(review)]
