"""Settings of admission besides quotas: Koordinator's feature gates for pods, and its check of entries' names.

In: `Gate=true,Other=false`, as the flag `--feature-gates` spells it, gates of quotas among them. Out: `FeatureGates`. A gate
that does not exist, or a value other than true and false, is a GateError that names it.
"""

from __future__ import annotations

import msgspec

from cotenant.domain.quota.gates import QUOTA_GATES as QUOTA_GATES
from cotenant.domain.quota.gates import GateError, QuotaGates, quota_gates


class AdmissionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for pods and the node configuration that differ from the default."""

    skip_mutating_resources: bool = False
    """`ColocationProfileSkipMutatingResources`: profiles leave cpu and memory as they are."""
    skip_validating_priority: bool = False
    """`ColocationProfileSkipValidatingPriority`: the label `koordinator.sh/priority` of a live pod may change."""
    disable_extended_resource_spec: bool = False
    """`DisableExtendedResourceSpec`: the annotation `extended-resource-spec` is not written."""
    disable_device_resource_spec: bool = False
    """`DisableDeviceResourceSpec`: GPUs stay as the pod's author wrote them."""
    entries_need_names: bool = False
    """`--node-strategy-name-need-check`: node entries of a section have names, each its own."""


class FeatureGates(msgspec.Struct, frozen=True):
    """The value of `--feature-gates`."""

    quotas: QuotaGates = QuotaGates()
    admission: AdmissionSettings = AdmissionSettings()


POD_GATES = {
    "ColocationProfileSkipMutatingResources": "skip_mutating_resources",
    "ColocationProfileSkipValidatingPriority": "skip_validating_priority",
    "DisableDeviceResourceSpec": "disable_device_resource_spec",
    "DisableExtendedResourceSpec": "disable_extended_resource_spec",
}
"""The setting of each gate of pods."""
GATEWAY_GATES = (*sorted({*POD_GATES, *QUOTA_GATES}),)
_VALUES = {"true": True, "false": False}


def settings_of(gates: FeatureGates, entries_need_names: str) -> AdmissionSettings:
    """Return the settings of both flags; `entries_need_names` is `true` or `false`."""
    return msgspec.structs.replace(gates.admission, entries_need_names=_VALUES[entries_need_names])


def feature_gates(text: str) -> FeatureGates:
    """Return the settings of a list of gates. Raises GateError."""
    of_pods: dict[str, bool] = {}
    of_quotas: list[str] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        if name not in GATEWAY_GATES:
            raise GateError(f"there is no feature gate {name!r}: it is one of {', '.join(GATEWAY_GATES)}")
        if name in QUOTA_GATES:
            of_quotas.append(item)
        elif value.lower() not in _VALUES:
            raise GateError(f"feature gate {name} is {value!r}: must be true or false")
        else:
            of_pods[POD_GATES[name]] = _VALUES[value.lower()]
    return FeatureGates(quota_gates(",".join(of_quotas)), AdmissionSettings(**of_pods))
