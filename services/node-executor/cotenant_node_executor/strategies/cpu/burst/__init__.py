"""CPU burst of latency-sensitive pods: the kernel's burst, and CFS quotas that grow while a container is throttled."""
