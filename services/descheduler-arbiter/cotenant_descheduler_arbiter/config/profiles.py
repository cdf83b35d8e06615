"""The profiles: which plugins each runs, with their arguments.

In: `profiles` of the document. Out: a ProfilePlan for each, in order; the arguments that all profiles share
(LowNodeLoad, MigrationController), or a PolicyError that names the field.

The plugins enabled at a point are added to its defaults (MigrationController at evict and filter, none elsewhere);
`disabled` takes defaults away, `*` all of them. Every profile needs MigrationController at both points: it is the only one that
evicts, and the filters are those of its jobs. LowNodeLoad runs in one profile at most, and MigrationController has one set of
arguments, as there is one queue of jobs.

Source: koord-descheduler's framework (merge of plugin sets, checks at start).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant_descheduler_arbiter.config.checks import PolicyError, check, checked_selector
from cotenant_descheduler_arbiter.config.configuration import Args, DeschedulerConfiguration, DeschedulerProfile, PluginSet
from cotenant_descheduler_arbiter.config.plugin_points import BALANCE, DESCHEDULE, POINTS, decode_args
from cotenant_descheduler_arbiter.config.policy import LOW_NODE_LOAD, MIGRATION_CONTROLLER, PluginRun, ProfilePlan
from cotenant_descheduler_arbiter.config.selector_text import both

DEFAULT_NAME = "koord-descheduler"
MAX_PROFILES = 100
_KNOWN = {
    DESCHEDULE: frozenset(name for name, (point, _) in POINTS.items() if point == DESCHEDULE),
    BALANCE: frozenset({LOW_NODE_LOAD, *(name for name, (point, _) in POINTS.items() if point == BALANCE)}),
    "evict": frozenset({MIGRATION_CONTROLLER}),
    "filter": frozenset({MIGRATION_CONTROLLER}),
}
_DEFAULTS = {DESCHEDULE: (), BALANCE: (), "evict": (MIGRATION_CONTROLLER,), "filter": (MIGRATION_CONTROLLER,)}
_ALL = "*"
A = TypeVar("A", bound=Args)


def enabled_at(point: str, given: PluginSet) -> list[str]:
    """Return the names of the plugins that run at a point, in order. Raises PolicyError."""
    for plugin in given.enabled:
        known = _KNOWN[point]
        check(
            plugin.name in known,
            f"plugins.{point}.enabled",
            f"{plugin.name} is not a plugin of this extension point; known: {', '.join(sorted(known))}",
        )
    disabled = {plugin.name for plugin in given.disabled}
    names = [name for name in _DEFAULTS[point] if _ALL not in disabled and name not in disabled]
    names += [plugin.name for plugin in given.enabled if plugin.name not in names]
    check(len(names) == len(set(names)), f"plugins.{point}.enabled", "names a plugin twice")
    return names


def _plan(document: DeschedulerConfiguration, profile: DeschedulerProfile, name: str) -> ProfilePlan:
    names = {point: enabled_at(point, getattr(profile.plugins, point)) for point in _KNOWN}
    for point in ("evict", "filter"):
        check(bool(names[point]), f"profiles[{name}].plugins.{point}", f"{MIGRATION_CONTROLLER} has to be enabled here")
    counted = [config.name for config in profile.plugin_config]
    for config in counted:
        known = config in POINTS or config in (LOW_NODE_LOAD, MIGRATION_CONTROLLER)
        check(known, f"profiles[{name}].pluginConfig[{config}]", "is not a known plugin")
        check(counted.count(config) == 1, f"pluginConfig[{config}]", "is given more than once")
    return ProfilePlan(
        name=name,
        node_selector=_selector(name, document, profile),
        deschedule=_runs(profile, names[DESCHEDULE]),
        balance=_runs(profile, [each for each in names[BALANCE] if each != LOW_NODE_LOAD]),
        low_node_load=LOW_NODE_LOAD in names[BALANCE],
    )


def _selector(name: str, document: DeschedulerConfiguration, profile: DeschedulerProfile) -> LabelSelector | None:
    everywhere = checked_selector("nodeSelector", document.node_selector)
    return both(everywhere, checked_selector(f"profiles[{name}].nodeSelector", profile.node_selector))


def _runs(profile: DeschedulerProfile, names: Sequence[str]) -> tuple[PluginRun, ...]:
    given = {config.name: config.args for config in profile.plugin_config}
    runs = []
    for name in names:
        try:
            runs.append(PluginRun(name, decode_args(name, given.get(name, msgspec.Raw(b"{}")))))
        except ValueError as error:
            raise PolicyError(f"pluginConfig[{name}].args: {error}") from error
    return tuple(runs)


def plans(document: DeschedulerConfiguration) -> tuple[ProfilePlan, ...]:
    """Return the profiles as they run. Raises PolicyError."""
    given = document.profiles
    check(len(given) <= MAX_PROFILES, "profiles", f"{len(given)} are more than {MAX_PROFILES}")
    names = [profile.name or (DEFAULT_NAME if len(given) == 1 else "") for profile in given]
    check(all(names), "profiles", "every one of several profiles needs a name")
    check(len(set(names)) == len(names), "profiles", "two have the same name")
    found = tuple(_plan(document, profile, name) for profile, name in zip(given, names, strict=True))
    loads = [plan.name for plan in found if plan.low_node_load]
    check(len(loads) <= 1, "profiles", f"{LOW_NODE_LOAD} is enabled in several profiles: {', '.join(loads)}")
    return found


def args_once(document: DeschedulerConfiguration, name: str, cls: type[A]) -> A | None:
    """Return the arguments of a plugin that has one set for all profiles; None if there are none. Raises PolicyError."""
    configs = [config for profile in document.profiles for config in profile.plugin_config if config.name == name]
    if not configs:
        return None
    same = len({bytes(config.args) for config in configs}) == 1
    check(same, f"pluginConfig[{name}]", "differs between profiles: there is one for all of them")
    try:
        return msgspec.json.decode(configs[0].args, type=cls)
    except msgspec.DecodeError as error:
        raise PolicyError(f"pluginConfig[{name}].args: {error}") from error
