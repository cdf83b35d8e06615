"""Values that every pod gets from its own amounts, and batch pods from theirs."""
