"""The workload of a run, from its seed: actions of users, administrators and machines, as entries.

In: a seed and a header. Out: entries. Each part has its own random generator, so that a change of one leaves the
others' seeds as they are.

| part | what |
|---|---|
| `machines` | nodes of several shapes |
| `quotas` | two trees, one of several levels; min, max, weights and lending change; some changes are refused |
| `pods` | services with rising and falling load, greedy ones among them; jobs that end; updates, deletes, the same name again |
| `resizes` | in every second run: some of these pods are resized in place, beyond their nodes too |
| `quota_profiles` | in every second run of ten minutes and more: trees of the nodes of a zone, and jobs in them |
| `gangs` | jobs whose pods are placed together or not at all, by annotations and by PodGroups |
| `reservations` | room kept for pods with a label, that expires, is deleted, is used once or often |
| `constraints` | namespaces whose labels change; affinities, spread, ports, gates, taints, zones; preemption with a budget |
| `administration` | the node configuration, invalid ones among them; a budget; users' migration jobs |
| `memory` | in every second run: pods that leak, outgrow their request, or take what their machine has |
| `profiles` | colocation profiles, invalid ones among them, and pods that they change |
| `trace` | in place of machines and pods: a piece of the openb trace |
| `yarn` | in every second run: NodeManagers beside the executors, applications that take and return capacity |
"""

from __future__ import annotations

from cotenant_verification.workload.administration import administration
from cotenant_verification.workload.constraints import constraints
from cotenant_verification.workload.gangs import gangs
from cotenant_verification.workload.machines import machines
from cotenant_verification.workload.memory import memory
from cotenant_verification.workload.pods import pods
from cotenant_verification.workload.profiles import profiles
from cotenant_verification.workload.quota_profiles import quota_profiles
from cotenant_verification.workload.quotas import quotas
from cotenant_verification.workload.reservations import reservations
from cotenant_verification.workload.resizes import resizes
from cotenant_verification.workload.schedule import Header, ScheduleEntry
from cotenant_verification.workload.yarn import yarn


def workload(header: Header) -> list[ScheduleEntry]:
    """All actions of users and machines in a run."""
    nodes, capacity = machines(header)
    of_pods = pods(header, capacity)
    parts = (
        quotas(header, capacity),
        quota_profiles(header, capacity),
        of_pods,
        resizes(header, of_pods),
        gangs(header, capacity),
        reservations(header, capacity),
        constraints(header, capacity),
        memory(header),
        administration(header),
        profiles(header),
        yarn(header, capacity),
    )
    return [*nodes, *(entry for part in parts for entry in part)]
