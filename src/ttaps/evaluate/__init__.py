"""Evaluation: data set x method x seed -> stored rows (``run``), and from rows to numbers (``frame``, ``statistics``).

Nothing is imported here: reading results needs no torch.
"""
