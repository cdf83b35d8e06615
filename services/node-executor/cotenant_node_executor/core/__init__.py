"""The pure part of the executor: placements and observations in; orders, file values and reports out."""
