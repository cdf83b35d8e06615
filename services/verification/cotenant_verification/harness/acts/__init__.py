"""What each kind of entry does when its moment comes: one function a kind, and the table of all.

In: the stage, an entry, the time. Out: whether anything was there to act on. `users` and `cluster` are the workload; `links`,
`processes` and `machines` are faults of the ways to the log, of services and of nodes; `yarn` is what happens there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from cotenant_verification.harness.acts import cluster, links, machines, processes, users, yarn
from cotenant_verification.workload.schedule import Entry

if TYPE_CHECKING:
    from cotenant_verification.harness.harness import Stage

Act = Callable[["Stage", Entry, datetime], bool]

ACTS: Mapping[str, Act] = {**users.ACTS, **cluster.ACTS, **links.ACTS, **processes.ACTS, **machines.ACTS, **yarn.ACTS}
