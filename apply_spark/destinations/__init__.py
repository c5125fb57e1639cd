"""The destinations that penstock ships, one file each."""
