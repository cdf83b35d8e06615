"""The descheduler's plugins: each says which pods should not stay where they are."""
