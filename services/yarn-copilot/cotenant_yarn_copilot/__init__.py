"""Node capacities to a YARN ResourceManager, and YARN usage back."""
