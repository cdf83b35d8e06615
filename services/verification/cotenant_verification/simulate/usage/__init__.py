"""Usage over time, replayed through the formulas of overcommitment: what is offered, used, taken back, and where it broke."""
