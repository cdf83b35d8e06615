"""The overcommitment formulas: pure functions of integers."""
