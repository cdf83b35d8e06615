"""Configurations with profiles that run plugins."""


from collections.abc import Mapping

import msgspec

from cotenant_descheduler_arbiter.config.configuration import DeschedulerConfiguration

Profile = dict[str, object]
LOOSE = {
    "evictBurst": 100,
    "maxMigratingPerNode": 0,
    "objectLimiters": {},
    "maxMigratingPerWorkload": "100%",
    "maxUnavailablePerWorkload": "100%",
    "skipCheckExpectedReplicas": True,
}


def profile(
    name: str,
    *,
    deschedule: Mapping[str, object] | None = None,
    balance: Mapping[str, object] | None = None,
    jobs: Mapping[str, object] | None = None,
    **more: object,
) -> Profile:
    """A profile that runs these plugins with these arguments; budgets are loose unless `jobs` says otherwise."""
    plugins: dict[str, object] = {}
    args: list[dict[str, object]] = [{"name": "MigrationController", "args": {**LOOSE, **(jobs or {})}}]
    for point, given in (("deschedule", deschedule or {}), ("balance", balance or {})):
        plugins[point] = {"enabled": [{"name": each} for each in given]}
        args += [{"name": each, "args": value} for each, value in given.items()]
    return {"name": name, "plugins": plugins, "pluginConfig": args, **more}


def configured(*profiles: Profile, **top: object) -> DeschedulerConfiguration:
    document = {"deschedulingInterval": "10s", "profiles": profiles, **top}
    return msgspec.json.decode(msgspec.json.encode(document), type=DeschedulerConfiguration)
