"""``ttaps tune``: test-time settings for one model, chosen on its own validation images by successive halving."""
