"""Evaluation: data set x method x seed -> rows (``run``) -> numbers (``frame``, ``statistics``, which need no torch: no import here)."""
