"""The support-vector memory (SVDD at fixed C)."""
