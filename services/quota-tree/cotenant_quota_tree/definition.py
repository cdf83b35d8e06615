"""The service definition for its process, the simulator and replay."""

from datetime import timedelta
from typing import Annotated

import msgspec

from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.terminating import Terminating
from cotenant.engine.definition import GATHERED, Question, ServiceDefinition
from cotenant.model.bounds import MAX_SECONDS
from cotenant_quota_tree.core import FILTERS, QuotaTreeCore
from cotenant_quota_tree.debugging import answer
from cotenant_quota_tree.gauges import GAUGES
from cotenant_quota_tree.revocation import Revocation

CORE_VERSION = "4"
PACE = timedelta(seconds=1)
"""At most one batch in this time: the scheduler computes runtimes itself, and for users this is soon enough."""


class QuotaTreeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`scale_min`: scale mins that do not fit in the total. `guarantee_usage`: capacity in use is not shared with other quotas
    (off in Koordinator).

    `terminating_pods`: "count", "ignore-expired" (its grace period is over) or "ignore"; `ignore_pod_overhead`: what runtime
    classes add does not count.
    `settle_seconds`: a change of requests or usage alone is published at most this often per quota.
    `monitor_all_quotas`: pods of quotas that use more than their runtime are evicted (off in Koordinator), once
    `delay_evict_seconds` have passed; its `delayEvictTime`.
    """

    scale_min: bool = True
    guarantee_usage: bool = False
    terminating_pods: Terminating = Terminating.COUNT
    ignore_pod_overhead: bool = False
    settle_seconds: float = 1
    monitor_all_quotas: bool = False
    delay_evict_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)] = 120


def make_core(config: QuotaTreeConfig) -> QuotaTreeCore:
    """Return an empty core."""
    rules = QuotaRules(
        scale_min=config.scale_min,
        guarantee_usage=config.guarantee_usage,
        terminating=config.terminating_pods,
        ignore_overhead=config.ignore_pod_overhead,
    )
    revocation = Revocation(config.monitor_all_quotas, timedelta(seconds=config.delay_evict_seconds))
    return QuotaTreeCore(rules, timedelta(seconds=config.settle_seconds), revocation)


DEFINITION = ServiceDefinition(
    name="quota-tree",
    core_version=CORE_VERSION,
    filters=FILTERS,
    config_type=QuotaTreeConfig,
    make_core=make_core,
    traced=("objects.",),
    gauges=GAUGES,
    questions=(Question("debug", answer),),
    pace=PACE,
    gather=GATHERED,
    summary="shares the cluster among elastic quotas: runtime quota, scaled mins, used, overuse",
)
