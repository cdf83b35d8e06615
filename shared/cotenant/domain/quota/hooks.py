"""Hooks of quota admission: an operator's own rules, from Python packages installed beside the scheduler.

In: the hooks of the scheduler's configuration (Koordinator's `hookPlugins`), and the factories that packages offer under the
entry point group `GROUP`, by name. Out: the hooks by key, or HookError: a missing or repeated key, a factory that is not there
or fails.

A hook is asked about a pod that its quota has room for, before the quota's ancestors are checked (`QuotaHook`). It is part of a
decision that can be recomputed: a function of what it is given, without I/O, clock, randomness or state of its own. What pods
are evaluated together share one answer, so it sees what they have in common. Source: Koordinator ElasticQuota, hook plugins
(CheckPod).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from cotenant.domain.quota.admission import QuotaLevel
from cotenant.model.amounts import Amounts

GROUP = "cotenant.quota_hooks"
"""The entry point group of the factories."""

HookArgs = Mapping[str, str | int | float | bool]


class HookPlugin(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One hook of the configuration."""

    key: str
    """Names it in refusals."""
    factory_key: str
    """The name of an entry point of `GROUP`."""
    factory_args: dict[str, str | int | float | bool] = {}


class AskingPod(msgspec.Struct, frozen=True):
    """What a hook decides on. Amounts: cpu in milli-cores, everything else in base units."""

    request: Amounts
    """In all resources that the pod requests; before a gang pre-empts, the sum over its pods of the quota."""
    preemptible: bool
    levels: Sequence[QuotaLevel]
    """The pod's quota, then its ancestors, nearest first, without the root."""


class QuotaHook(Protocol):
    """What a factory returns."""

    def check_pod(self, pod: AskingPod) -> str:
        """Return why the pod has to wait; empty to admit it."""


HookFactory = Callable[[HookArgs], QuotaHook]


class HookError(ValueError):
    """The text names the hook, what is wrong with it and what to do."""


def made_hooks(plugins: Iterable[HookPlugin], factory_of: Callable[[str], HookFactory | None]) -> dict[str, QuotaHook]:
    """Return the hooks by key, in their order. `factory_of` returns the factory of a name. Raises HookError."""
    hooks: dict[str, QuotaHook] = {}
    for index, plugin in enumerate(plugins):
        where = f"hookPlugins[{index}]"
        if not plugin.key or plugin.key in hooks:
            wrong = "is given twice" if plugin.key else "names nothing"
            raise HookError(f"{where}.key: {plugin.key!r} {wrong}; each hook needs its own key")
        try:
            factory = factory_of(plugin.factory_key)
            hook = factory(plugin.factory_args) if factory is not None else None
        except Exception as error:
            raise HookError(f"{where} ({plugin.key}): its factory failed: {error!r}; see factoryArgs") from error
        if hook is None:
            raise HookError(
                f"{where}.factoryKey: no installed package has an entry point {plugin.factory_key!r} in the group {GROUP}"
            )
        hooks[plugin.key] = hook
    return hooks


def hooks_refusal(hooks: Mapping[str, QuotaHook], pod: AskingPod) -> str:
    """Return the refusal of the first hook that has one, in Koordinator's words; empty if none has."""
    for key, hook in hooks.items():
        refusal = hook.check_pod(pod)
        if refusal:
            return f"CheckPod failed for hook plugin {key}, err: {refusal}"
    return ""
