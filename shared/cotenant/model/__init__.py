"""Names, numbers and subjects that all other modules use."""
