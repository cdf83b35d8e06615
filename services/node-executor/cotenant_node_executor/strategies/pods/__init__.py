"""Values of every pod from its own amounts, and of batch pods from their batch resources."""
