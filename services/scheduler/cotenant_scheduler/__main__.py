"""The scheduler's process."""

from __future__ import annotations

from cotenant.runtime.deciding import run_service
from cotenant_scheduler.definition import DEFINITION


def main() -> None:
    """Run until stopped."""
    run_service(DEFINITION)


if __name__ == "__main__":
    main()
