"""Conversions between cgroup v1 and v2 units, and from milli-CPU (koordlet's rules; all integer arithmetic).

cpu.weight = 1 + (shares - 2) * 9999 // 262142        shares 2..262144
cpu.shares = clamp((weight - 1) * 262142 // 9999 + 2) weight 1..10000; not inverse: 1024 -> 39 -> 998
cpu.max    = "<quota|max> <period>"                   -1 is max
memory     = bytes; v1 at or above 0x7ffffffffffff000 and v2's "max" are -1
"""

from __future__ import annotations

MIN_SHARES, MAX_SHARES = 2, 262144
MIN_WEIGHT, MAX_WEIGHT = 1, 10000
MIN_QUOTA_US = 1000
PERIOD_US = 100_000
V1_UNLIMITED_BYTES = 0x7FFFFFFFFFFFF000
UNLIMITED = -1


def parse_int(text: str, what: str) -> int:
    """Parse a decimal integer with optional sign; underscores and inner blanks, which `int` accepts, are refused."""
    stripped = text.strip("\n")
    digits = stripped[1:] if stripped[:1] == "-" else stripped
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{what}: {text!r} is not an integer")
    return int(stripped)


def shares_to_weight(shares: int) -> int:
    if not MIN_SHARES <= shares <= MAX_SHARES:
        raise ValueError(f"cpu.shares {shares} is outside {MIN_SHARES}..{MAX_SHARES}")
    return 1 + (shares - 2) * 9999 // 262142


def weight_to_shares(weight: int) -> int:
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise ValueError(f"cpu.weight {weight} is outside {MIN_WEIGHT}..{MAX_WEIGHT}")
    return min(max((weight - 1) * 262142 // 9999 + 2, MIN_SHARES), MAX_SHARES)


def exact_shares(shares: int) -> int:
    """Return the shares that become the same weight again, given those that `weight_to_shares` makes of it: rounding down twice
    loses one."""
    return shares if weight_to_shares(shares_to_weight(shares)) == shares else min(shares + 1, MAX_SHARES)


def milli_to_shares(milli: int) -> int:
    return MIN_SHARES if milli <= 0 else min(max(milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def milli_to_quota_us(milli: int) -> int:
    """Quota in µs for the default period of 100 ms; at least 1 ms, the kernel's minimum."""
    return UNLIMITED if milli <= 0 else max(milli * PERIOD_US // 1000, MIN_QUOTA_US)


def _cpu_max_fields(content: str) -> tuple[str, str]:
    fields = content.split()
    if len(fields) != 2:
        raise ValueError(f"cpu.max {content!r}: expected two fields, quota and period")
    return fields[0], fields[1]


def quota_of_cpu_max(content: str) -> int:
    """The quota in µs, -1 for unlimited; a malformed period is ignored."""
    quota = _cpu_max_fields(content)[0]
    return UNLIMITED if quota == "max" else parse_int(quota, "cpu.max quota")


def period_of_cpu_max(content: str) -> int:
    return parse_int(_cpu_max_fields(content)[1], "cpu.max period")


def max_or_int(text: str, what: str) -> int:
    return UNLIMITED if text.strip("\n") == "max" else parse_int(text, what)


def int_or_max(value: int) -> str:
    return "max" if value == UNLIMITED else str(value)


def memory_limit_v1(content: str) -> int:
    value = parse_int(content, "memory.limit_in_bytes")
    return UNLIMITED if value >= V1_UNLIMITED_BYTES else value


def memory_limit_v2(content: str) -> int:
    return max_or_int(content, "memory.max")
