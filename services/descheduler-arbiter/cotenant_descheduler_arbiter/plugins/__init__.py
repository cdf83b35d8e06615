"""The descheduler's plugins: each chooses pods to evict."""
