"""The p99 of a service's response time as a function of its contention: a model of the cost of best-effort work.

In: a service's CPU usage, its available CPU, best-effort's usage of the machine. Out: microseconds.

- Queueing: M/M/1. The time in the system is exponential with rate (1 - rho) / S (Kleinrock, Queueing Systems I, 3.2), so its
  p99 is ln(100) * S / (1 - rho); rho is what the service uses of the CPU it may have: its quota, or what other services and the
  system leave.
- Contention: a request takes longer while the sibling thread of its core is busy. Two busy threads of a core give some 1.25
  times the work of one, so each runs at 0.625 of the speed and takes 1.6 times as long; the sibling is busy with best-effort
  work for best-effort's share of the machine.

Integers; rho is cut at 98 %, so that an overloaded service has a number.
"""

from __future__ import annotations

SERVICE_TIME_US = 1_000
LN_100_PERMILLE = 4_605
SIBLING_COST_PERMILLE = 600
LEAST_IDLE_PERMILLE = 20


def p99_us(used_milli: int, available_milli: int, batch_milli: int, capacity_milli: int) -> int:
    """The 99th percentile of the response time of a service."""
    slowed = 1_000 + SIBLING_COST_PERMILLE * batch_milli // max(capacity_milli, 1)
    busy = used_milli * slowed // max(available_milli, 1)
    idle = max(1_000 - busy, LEAST_IDLE_PERMILLE)
    return LN_100_PERMILLE * SERVICE_TIME_US // 1_000 * slowed // idle
