"""Figures of a report and of single commands; each file draws one kind."""
