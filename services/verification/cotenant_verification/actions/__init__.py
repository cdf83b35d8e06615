"""The actions of schedule entries: one function a kind, and the table of all.

In: the harness, an entry, the time. Out: whether it had an effect. `users` and `cluster` are the workload; `links`,
`processes` and `machines` are faults of connections to the log, of services and of nodes; `yarn` is the YARN cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant_verification.actions import cluster, links, machines, processes, users, yarn
from cotenant_verification.harness.harness import Action

ACTIONS: Mapping[str, Action] = {
    **users.ACTIONS,
    **cluster.ACTIONS,
    **links.ACTIONS,
    **processes.ACTIONS,
    **machines.ACTIONS,
    **yarn.ACTIONS,
}
