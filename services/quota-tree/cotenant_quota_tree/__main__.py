"""The quota-tree process."""

from cotenant.runtime.deciding import run_service
from cotenant_quota_tree.definition import DEFINITION


def main() -> None:
    """Run the service until it is stopped."""
    run_service(DEFINITION)


if __name__ == "__main__":
    main()
