"""Runtime quota, written by quota-tree on `quotas.<tree>.<quota>`, and the root quota of a tree as its profile defines it."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Part, Payload
from cotenant.model.bounds import Count, Int32


class RevokedPod(Part, frozen=True, kw_only=True):
    """A pod to evict because its quota uses more than its runtime."""

    namespace: str
    name: str
    uid: str
    priority: Int32 = 0



class QuotaRuntime(Payload, frozen=True, kw_only=True):
    """One quota's state per resource name (cpu in milli-cores, others in units). A missing dimension is unlimited in
    max/runtime.

    `runtime` is what the quota may use now, in every dimension of its max. `request` counts pending and placed pods,
    children limited by their max; `used` the placed ones, of the whole sub-tree. `parent` is the quota's effective parent,
    and `reason` why that is not the one in its object: ParentNotFound, ParentInAnotherTree, ParentIsBuiltIn,
    ParentCycle; or DuplicateName where a quota of the same name in another namespace is not used.
    """

    TYPE = "cotenant.quota.v1"

    tree: str
    quota: str
    namespace: str = ""
    parent: str = ""
    is_parent: bool = False
    lends: bool = True
    """Whether siblings may use what it does not request of its min."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose pods without a quota label belong to it."""
    min: dict[str, int] = {}
    scaled_min: dict[str, int] = {}
    """Min after scaling to what the parent can distribute."""
    max: dict[str, int] = {}
    shared_weight: dict[str, int] = {}
    runtime: dict[str, int] = {}
    request: dict[str, int] = {}
    child_request: dict[str, int] = {}
    used: dict[str, int] = {}
    non_preemptible_request: dict[str, int] = {}
    non_preemptible_used: dict[str, int] = {}
    allocated: dict[str, int] = {}
    guaranteed: dict[str, int] = {}
    overused: tuple[str, ...] = ()
    """Resources in which used is above runtime, sorted."""
    total: dict[str, int] = {}
    """On the root only: what the tree distributes, without what the default and the system quota use."""
    reason: str = ""
    charged_at: Count = 0
    """The version of the quota's object into which admission wrote pods' requests, counted in `child_request`."""

    overused_since: datetime | None = None
    """Where over-use is revoked: since when the quota uses more than its runtime, or since its last wave of evictions."""
    revoked_at: datetime | None = None
    """When `revoke` was chosen."""
    revoke: tuple[RevokedPod, ...] = ()
    """The last wave: pods whose evictions are requested from the gateway, once each."""


class ProfiledQuota(Payload, frozen=True, kw_only=True):
    """Subject `quotas.<tree>.<quota>.profile`: the root quota of a tree as its ElasticQuotaProfile defines it. The gateway
    keeps the quota's object accordingly.

    `namespace` is that of the profile and of the quota. `total` is what the tree may distribute, `unschedulable` the part of it
    on nodes that are cordoned or not ready; both after the profile's ratio. `labels` are added to those that the object has.
    """

    TYPE = "cotenant.quotaprofile.v1"
    SUBJECT = "quotas.{tree}.{quota}.profile"

    tree: str
    quota: str
    namespace: str
    profile: str
    labels: dict[str, str] = {}
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    total: dict[str, int] = {}
    unschedulable: dict[str, int] = {}
