"""A tree of plain files with the refusals of the kernel imitated, for where control groups may not be written."""
