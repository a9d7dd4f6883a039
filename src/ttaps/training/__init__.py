"""Training: one readable loop, and an objective per method."""
