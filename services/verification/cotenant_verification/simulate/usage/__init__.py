"""Usage over time, replayed through the formulas of overcommitment: offers, usage, reductions, and breaches."""
