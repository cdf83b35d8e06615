"""Rules that several services share: QoS, quotas, reservations, colocation."""
