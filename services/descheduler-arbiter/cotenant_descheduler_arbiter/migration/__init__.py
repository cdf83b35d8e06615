"""Migration jobs: created, arbitrated, and taken through their phases."""
