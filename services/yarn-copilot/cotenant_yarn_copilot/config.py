"""Configuration of yarn-copilot."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cotenant_yarn_copilot.capacity import Rounding
from cotenant_yarn_copilot.hadoop_conf import HadoopConfigError, addresses, clusters_of_folder
from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER
from cotenant_yarn_copilot.rm_messages import NEVER_KILL_MS


class CopilotConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`resource_manager`: comma-separated base URLs of the default cluster's ResourceManagers; empty: no YARN.

    `clusters`: further clusters, id to URLs. `hadoop_conf_dir`: a folder with `yarn-site.xml` and `<id>.yarn-site.xml` of
    clusters that are not given here. `over_commit_timeout_ms`: how long containers may outlive a smaller total; the default
    never kills them. `rounding`: exact, or compatible with Koordinator's operator. `user`: the `user.name` that calls carry,
    if any.
    """

    resource_manager: str = ""
    clusters: dict[str, str] = {}
    hadoop_conf_dir: str = ""
    sync_seconds: float = 5.0
    over_commit_timeout_ms: int = NEVER_KILL_MS
    rounding: Rounding = Rounding.EXACT
    user: str = ""

    def urls(self) -> dict[str, tuple[str, ...]]:
        """Return the ResourceManagers by cluster id. Raises ValueError on an address that is not an http URL, and on a folder
        that cannot be read."""
        found = {DEFAULT_CLUSTER: self.resource_manager, **self.clusters}
        split = {cluster: tuple(part.strip() for part in text.split(",") if part.strip()) for cluster, text in found.items()}
        for cluster, urls in split.items():
            for url in urls:
                if not url.startswith(("http://", "https://")):
                    raise ValueError(f"ResourceManager {url!r} of cluster {cluster}: expected a URL such as http://host:8088")
        given = {cluster: urls for cluster, urls in split.items() if urls}
        if not self.hadoop_conf_dir:
            return given
        others = (each for each in clusters_of_folder(Path(self.hadoop_conf_dir)) if each not in given)
        return {**given, **{cluster: self.urls_in_folder(cluster) for cluster in others}}

    def urls_in_folder(self, cluster: str) -> tuple[str, ...]:
        """Return a cluster's ResourceManagers as the folder names them now. Raises HadoopConfigError."""
        if not self.hadoop_conf_dir:
            raise HadoopConfigError("no hadoop_conf_dir is configured")
        return addresses(Path(self.hadoop_conf_dir), cluster)
