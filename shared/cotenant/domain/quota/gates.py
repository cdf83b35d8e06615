"""Koordinator's feature gates of elastic quotas that change what is admitted, as switches.

In: `Gate=true,Other=false`, as the flag `--feature-gates` spells it. Out: `QuotaGates`. The names are Koordinator's; all are
off there, and here. A gate that does not exist, or a value other than true and false, is a GateError that names it.
`MultiQuotaTree` has no switch: a tree exists where a quota or a profile names one.
"""

import msgspec


class QuotaGates(msgspec.Struct, frozen=True, kw_only=True):
    """Which rules of admission are on."""

    enable_update_resource_key: bool = False
    """`ElasticQuotaEnableUpdateResourceKey`: max of a child may list fewer resources than that of its parent."""
    guarantee_usage: bool = False
    """`ElasticQuotaGuaranteeUsage`: a min is accepted only if the quotas above can guarantee it. The services that share the
    cluster have a setting of their own for it."""
    parents_take_pods: bool = False
    """`SupportParentQuotaSubmitPod`: a pod may belong to a parent quota."""
    admission: bool = False
    """`EnableQuotaAdmission`: a new pod is refused when its quota has no room."""
    admission_on_update: bool = False
    """`EnableQuotaAdmissionOnUpdate`: the same for a pod that changes its quota."""
    disable_default_quota: bool = False
    """`DisableDefaultQuota`: a pod that names no quota belongs to none."""


QUOTA_GATES = {
    "ElasticQuotaEnableUpdateResourceKey": "enable_update_resource_key",
    "ElasticQuotaGuaranteeUsage": "guarantee_usage",
    "SupportParentQuotaSubmitPod": "parents_take_pods",
    "EnableQuotaAdmission": "admission",
    "EnableQuotaAdmissionOnUpdate": "admission_on_update",
    "DisableDefaultQuota": "disable_default_quota",
}
"""The switch of each gate."""
_VALUES = {"true": True, "false": False}


class GateError(ValueError):
    """The text names an unknown gate, or no valid value."""


def quota_gates(text: str) -> QuotaGates:
    """Return the switches that a list of gates sets. Raises GateError."""
    found: dict[str, bool] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        if name not in QUOTA_GATES:
            raise GateError(f"there is no feature gate {name!r}: it is one of {', '.join(sorted(QUOTA_GATES))}")
        if value.lower() not in _VALUES:
            raise GateError(f"feature gate {name} is {value!r}: it is true or false")
        found[QUOTA_GATES[name]] = _VALUES[value.lower()]
    return QuotaGates(**found)
