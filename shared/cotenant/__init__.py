"""The contract that every service and every outside subscriber shares."""
