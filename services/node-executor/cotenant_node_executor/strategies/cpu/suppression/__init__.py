"""CPU suppression: batch work gets what services leave."""
