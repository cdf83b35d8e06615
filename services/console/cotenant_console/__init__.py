"""The cotenant command."""
