"""Resource amounts of quotas: integers by resource name, cpu in milli-cores, everything else in its base unit.

In: quantity strings as users write them. Out: `dict[str, int]`. A quantity that is no whole number of units is rounded
up, as Kubernetes does. A missing dimension is zero in sums, and no limit at all in `exceeding`; `exceeding_complete`
is the stricter comparison (a dimension that the limit lacks is a limit of zero), which the sums of mins need.
"""

from collections.abc import Container, Iterable, Mapping
from functools import lru_cache

from cotenant.model.quantities import Scalar, format_amount, parse_milli, parse_value

Amounts = Mapping[str, int]
"""Resource name to integer amount: milli-cores for `cpu`, bytes, cards or pieces for all others."""

LARGEST_AMOUNT = 2**63 - 1
"""Amounts are capped here, as they travel as 64-bit integers: a max of "everything" in cores is more milli-cores than that."""


def parse_amount(resource: str, quantity: Scalar) -> int:
    """The amount of one resource. Raises QuantityError with the expected form for a malformed quantity."""
    return min(parse_milli(quantity) if resource == "cpu" else parse_value(quantity), LARGEST_AMOUNT)


def parse_amounts(quantities: Mapping[str, Scalar]) -> dict[str, int]:
    return {resource: parse_amount(resource, quantity) for resource, quantity in quantities.items()}


def as_texts(amounts: Amounts) -> dict[str, str]:
    """Quantities as objects hold them, in the order of the resources."""
    return {resource: format_amount(resource, amount) for resource, amount in sorted(amounts.items())}


def format_amounts(amounts: Amounts) -> str:
    """`cpu:1,memory:3`, sorted; `<empty>` where there is none."""
    return _formatted(tuple(amounts.items()))


@lru_cache(maxsize=4096)
def _formatted(amounts: tuple[tuple[str, int], ...]) -> str:
    """Cached, as pods that wait for a quota report the same figures repeatedly."""
    pairs = sorted(f"{resource}:{format_amount(resource, amount)}" for resource, amount in amounts)
    return ",".join(pairs) or "<empty>"


def plus(left: Amounts, right: Amounts) -> dict[str, int]:
    total = dict(left)
    for resource, amount in right.items():
        total[resource] = total.get(resource, 0) + amount
    return total


def minus(left: Amounts, right: Amounts) -> dict[str, int]:
    """May be negative."""
    rest = dict(left)
    for resource, amount in right.items():
        rest[resource] = rest.get(resource, 0) - amount
    return rest


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    result: dict[str, int] = {}
    for part in parts:
        for resource, amount in part.items():
            result[resource] = result.get(resource, 0) + amount
    return result


def larger(left: Amounts, right: Amounts) -> dict[str, int]:
    """Per dimension the larger one, over the union of dimensions."""
    result = dict(left)
    for resource, amount in right.items():
        result[resource] = max(result.get(resource, amount), amount)
    return result


def limited(amounts: Amounts, bound: Amounts) -> dict[str, int]:
    """Per dimension the smaller one; a dimension that the bound lacks is not limited."""
    return {resource: min(amount, bound.get(resource, amount)) for resource, amount in amounts.items()}


def masked(amounts: Amounts, keys: Container[str]) -> dict[str, int]:
    """Only the dimensions named by `keys`."""
    return {resource: amount for resource, amount in amounts.items() if resource in keys}


def add_to(amounts: dict[str, int], more: Amounts, times: int) -> None:
    """Add `more` so many times; amounts that become zero are dropped."""
    for resource, amount in more.items():
        if amount:
            now = amounts.get(resource, 0) + amount * times
            if now:
                amounts[resource] = now
            else:
                del amounts[resource]


def fits(held: Amounts, more: Amounts, limit: Amounts) -> bool:
    """Return whether the sum of both is within the limit in every dimension that it and the limit have."""
    for resource, bound in limit.items():
        if resource in held:
            if held[resource] + more.get(resource, 0) > bound:
                return False
        elif resource in more and more[resource] > bound:
            return False
    return True


def fits_in_its_own(held: Amounts, more: Amounts, limit: Amounts) -> bool:
    """As `fits`, but only in the dimensions of `more`: what is held beyond the limit in another one does not matter."""
    return all(held.get(resource, 0) + amount <= limit[resource] for resource, amount in more.items() if resource in limit)


def without_zeros(amounts: dict[str, int]) -> dict[str, int]:
    """The same amounts where none is zero."""
    if 0 not in amounts.values():
        return amounts
    return {resource: amount for resource, amount in amounts.items() if amount}


def exceeding(need: Amounts, limit: Amounts) -> tuple[str, ...]:
    """The dimensions, sorted, that are in both and in which `need` is above `limit`."""
    return tuple(sorted(resource for resource, amount in need.items() if amount > limit.get(resource, amount)))


def exceeding_complete(need: Amounts, limit: Amounts) -> tuple[str, ...]:
    """As `exceeding`, but a dimension missing in `limit` is a limit of zero."""
    return tuple(sorted(resource for resource, amount in need.items() if amount > limit.get(resource, 0)))
