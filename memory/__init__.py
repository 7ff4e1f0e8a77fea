"""Online memories: arrays in, arrays out."""
