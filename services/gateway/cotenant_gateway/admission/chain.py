"""The admission functions in the order in which they run: mutators first, then every validator.

In: a review. Out: the document to store with notes of what was changed, or all field errors; and warnings. To add a rule:
write a small pure function in a file of its own and name it here, for its kind. Rules that need the object alone are in the
kind's file (`cotenant.kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cotenant.api.kinds import Kind
from cotenant.api.validation.fields import FieldError
from cotenant.kinds.config_maps import CONFIG_MAPS
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS
from cotenant.kinds.koordinator.cluster_colocation_profiles import PROFILES
from cotenant.kinds.koordinator.elastic_quota_profiles import QUOTA_PROFILES
from cotenant.kinds.koordinator.node_metrics import NODE_METRICS
from cotenant.kinds.koordinator.node_slos import NODE_SLOS
from cotenant.kinds.koordinator.reservations import RESERVATIONS
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant_gateway.admission.durations import mutated, validated
from cotenant_gateway.admission.metadata_rules import metadata_is_valid
from cotenant_gateway.admission.node_configuration.rules import (
    node_configuration_is_valid,
    node_configuration_warnings,
)
from cotenant_gateway.admission.nodes.of_nodes import node_exists, rendered_members_warnings
from cotenant_gateway.admission.nodes.raw_allocatable import keep_raw_allocatable
from cotenant_gateway.admission.nodes.rules import new_node_warnings, node_figures_are_valid, one_entry_selects_node
from cotenant_gateway.admission.objects_rules import object_is_valid
from cotenant_gateway.admission.pods.devices import (
    complete_device_spec,
    complete_device_spec_again,
    complete_patched_device_spec,
    devices_are_possible,
)
from cotenant_gateway.admission.pods.enhanced_rules import enhanced_rules_are_valid, has_required_labels
from cotenant_gateway.admission.pods.extended_resources import (
    renew_extended_resource_spec,
    write_extended_resource_spec,
)
from cotenant_gateway.admission.pods.latency import latency_annotations_are_valid
from cotenant_gateway.admission.pods.priority import resolve_priority
from cotenant_gateway.admission.pods.replaced_resources import replace_resources
from cotenant_gateway.admission.pods.resizing import resize_is_allowed
from cotenant_gateway.admission.pods.rules import pod_is_valid, pod_update_is_allowed
from cotenant_gateway.admission.pods.runtime_class import merge_runtime_class
from cotenant_gateway.admission.pods.unresolved import unresolved_classes
from cotenant_gateway.admission.profiles.applying import (
    apply_colocation_profiles,
    reapply_colocation_profiles,
    translate_again,
)
from cotenant_gateway.admission.profiles.reservations import apply_profiles_to_reservation
from cotenant_gateway.admission.profiles.rules import colocation_profile_is_valid
from cotenant_gateway.admission.quotas.affinity import keep_on_nodes_of_tree, name_tree
from cotenant_gateway.admission.quotas.of_pods import preemptible_label_stays, quota_of_pod_is_a_leaf
from cotenant_gateway.admission.quotas.tree import complete_weight, inherit_tree, quota_is_valid
from cotenant_gateway.admission.review import Mutator, Review, Validator, Warner


class AdmissionRules(NamedTuple):
    """Admission of the objects of one kind, besides the rules in the kind's file."""

    mutators: tuple[Mutator, ...] = ()
    validators: tuple[Validator, ...] = ()
    warners: tuple[Warner, ...] = ()


PLAIN = AdmissionRules((), (metadata_is_valid, object_is_valid))
"""The rules of a kind that is not listed."""
OF_NODES = AdmissionRules((), (*PLAIN.validators, node_exists), (rendered_members_warnings,))
"""For documents derived from a node."""

NEW: Mapping[Kind, AdmissionRules] = {
    PODS: AdmissionRules(
        (
            resolve_priority,
            merge_runtime_class,
            apply_colocation_profiles,
            replace_resources,
            complete_device_spec,
            write_extended_resource_spec,
            keep_on_nodes_of_tree,
        ),
        (
            metadata_is_valid,
            unresolved_classes,
            pod_is_valid,
            devices_are_possible,
            latency_annotations_are_valid,
            quota_of_pod_is_a_leaf,
            has_required_labels,
        ),
    ),
    ELASTIC_QUOTAS: AdmissionRules((inherit_tree, complete_weight), (*PLAIN.validators, quota_is_valid)),
    NODES: AdmissionRules((), (*PLAIN.validators, node_figures_are_valid, one_entry_selects_node), (new_node_warnings,)),
    QUOTA_PROFILES: AdmissionRules((name_tree,), PLAIN.validators),
    PROFILES: AdmissionRules((), (*PLAIN.validators, colocation_profile_is_valid)),
    CONFIG_MAPS: AdmissionRules(
        (),
        (*PLAIN.validators, node_configuration_is_valid, enhanced_rules_are_valid),
        (node_configuration_warnings,),
    ),
    NODE_SLOS: OF_NODES,
    NODE_METRICS: OF_NODES,
    RESERVATIONS: AdmissionRules((apply_profiles_to_reservation,), PLAIN.validators),
}
"""For creations, by kind."""

LIVE: Mapping[Kind, AdmissionRules] = {
    **NEW,
    RESERVATIONS: PLAIN,
    PODS: AdmissionRules(
        (
            resolve_priority,
            merge_runtime_class,
            translate_again,
            replace_resources,
            complete_device_spec_again,
            renew_extended_resource_spec,
        ),
        (
            metadata_is_valid,
            pod_is_valid,
            pod_update_is_allowed,
            latency_annotations_are_valid,
            quota_of_pod_is_a_leaf,
            preemptible_label_stays,
            has_required_labels,
        ),
    ),
    NODES: AdmissionRules((keep_raw_allocatable,), NEW[NODES].validators),
}
"""For updates, by kind."""

WAITING = AdmissionRules(
    (reapply_colocation_profiles, replace_resources, complete_patched_device_spec, write_extended_resource_spec),
    NEW[PODS].validators,
)
"""For a pod that has not been placed when a profile changes: no service has counted it yet, so it is checked as a new one."""

RESIZING = AdmissionRules(
    (translate_again, replace_resources, write_extended_resource_spec),
    tuple(resize_is_allowed if each is pod_update_is_allowed else each for each in LIVE[PODS].validators),
)
"""For the subresource `resize` of a pod."""


def admit(review: Review, rules: AdmissionRules | None = None) -> list[FieldError]:
    """Let every mutator change the review's document, then return all field errors of the result. `rules`: None: those of its
    kind."""
    watch = review.objects.stopwatch
    if rules is None:
        rules = (NEW if review.old is None else LIVE).get(review.definition.kind, PLAIN)
    for mutate in rules.mutators:
        made = mutate(review) if watch is None else mutated(watch, mutate, review)
        if made is not None:
            review.take(made)
    found: list[FieldError] = []
    for validate in rules.validators:
        found += validate(review) if watch is None else validated(watch, validate, review)
    if rules.warners and not found:
        review.warnings = tuple(text for warn in rules.warners for text in warn(review))
    return found
