"""An executor that can be stopped and killed: a node on this kernel in a process of its own, without a server.

In: one argument, JSON {base, folder, manifests, hung_seconds}. Out: a line of JSON for each thing that it did. It samples and
decides once a second, as the service does, until standard input ends; the node SLO is withdrawn by a line.
"""

from __future__ import annotations

import json
import select
import sys
from datetime import UTC, datetime
from pathlib import Path

from cotenant.events.node.resources import CpuIdentity
from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.cgroup.knobs import probe
from tests.integration.node_kernel.kernel_bench import Bench

CYCLE_SECONDS = 1.0
PROTECTED = {
    "ls_identity": CpuIdentity(enable=True, group_identity=2),
    "be_identity": CpuIdentity(enable=True, group_identity=-1),
}


def main() -> None:
    """Be the executor."""
    given = json.loads(sys.argv[1])
    driver = open_driver(given["base"], "node-1")
    bench = Bench(driver, probe(driver), Path(given["folder"]))
    bench.machine.guard.hung_seconds = given["hung_seconds"]
    bench.slo(**PROTECTED)
    for manifest in given["manifests"]:
        bench.place(manifest)
    said = 0
    while True:
        bench.step()
        for execution in bench.executions[said:]:
            print(json.dumps({"topic": execution.topic, "summary": execution.summary}), flush=True)
        said = len(bench.executions)
        if select.select([sys.stdin], [], [], CYCLE_SECONDS)[0]:
            if not sys.stdin.readline():
                break
            bench.slo()
    bench.machine.stop_everything(datetime.now(UTC), 0)
    bench.machine.close()


if __name__ == "__main__":
    main()
