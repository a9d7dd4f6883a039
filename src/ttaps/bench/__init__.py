"""How fast adaptation is, as ratios of things measured in turns in one process."""
