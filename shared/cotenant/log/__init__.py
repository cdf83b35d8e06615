"""The log: its contract, in memory and on NATS JetStream."""
