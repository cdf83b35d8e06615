"""The pure part of the executor: from what is placed here and what was observed to orders, file values and reports."""
