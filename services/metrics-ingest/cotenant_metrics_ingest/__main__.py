"""The metrics-ingest process."""

from cotenant.runtime.deciding import run_service
from cotenant_metrics_ingest.definition import DEFINITION


def main() -> None:
    """Run the service until it is stopped."""
    run_service(DEFINITION)


if __name__ == "__main__":
    main()
