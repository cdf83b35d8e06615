"""Usage over time, replayed through the formulas of overcommitment: what is lent, used, taken back, and where it broke."""
