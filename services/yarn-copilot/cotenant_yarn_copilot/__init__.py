"""Sets NodeManager totals at a YARN ResourceManager, and publishes YARN's usage."""
