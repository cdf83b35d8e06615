"""Migration jobs: creation, arbitration, phases."""
