"""The batch-resource-calculator process."""

from __future__ import annotations

from cotenant.runtime.deciding import run_service
from cotenant_batch_resource_calculator.definition import DEFINITION


def main() -> None:
    """Run until stopped."""
    run_service(DEFINITION)


if __name__ == "__main__":
    main()
