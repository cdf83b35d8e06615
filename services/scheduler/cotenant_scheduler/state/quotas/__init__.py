"""What the scheduler knows of quotas, and what pods request of them and are charged with."""
