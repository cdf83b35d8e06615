"""The descheduler's plugins: each chooses pods that should not stay where they are."""
