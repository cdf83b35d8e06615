"""How long each admission function takes, by the labels of Koordinator's webhooks.

In: a review, the function, a stopwatch. Out: what the function returns, and a duration of its series: webhook type (mutate,
validate), kind, operation, function, and whether it let the object pass. Functions that Koordinator has are named as there, the
others by their own name.

Bound: as many series as kinds have functions, twice for operations and twice for outcomes.
"""

from __future__ import annotations

from cotenant.api.validation.fields import FieldError
from cotenant_gateway.admission.review import Mutation, Mutator, Review, Validator
from cotenant_gateway.read_model.stopwatch import Stopwatch

ALLOWED, REJECTED = "allowed", "rejected"
_NAMES = {
    "apply_colocation_profiles": "ClusterColocationProfile",
    "write_extended_resource_spec": "ExtendedResourceSpec",
    "keep_on_nodes_of_tree": "MultiQuotaTree",
    "complete_device_spec": "DeviceResourceSpec",
    "pod_is_valid": "ClusterColocationProfile",
    "quota_of_pod_is_a_leaf": "ElasticQuota",
    "quota_is_valid": "ElasticQuota",
}


def mutated(watch: Stopwatch, mutator: Mutator, review: Review) -> Mutation | None:
    """Run a mutator. Raises what it raises."""
    began, status = watch.now(), REJECTED
    try:
        made = mutator(review)
        status = ALLOWED
    finally:
        watch.took(_series("mutate", review, mutator.__name__, status), watch.now() - began)
    return made


def validated(watch: Stopwatch, validator: Validator, review: Review) -> list[FieldError]:
    """Run a validator."""
    began = watch.now()
    found = validator(review)
    status = REJECTED if found else ALLOWED
    watch.took(_series("validate", review, validator.__name__, status), watch.now() - began)
    return found


def _series(webhook: str, review: Review, function: str, status: str) -> tuple[str, ...]:
    operation = "CREATE" if review.old is None else "UPDATE"
    return webhook, review.kind.kind.lower(), operation, _NAMES.get(function, function), status
