"""Image classifiers that adapt themselves to a single test picture."""

__version__ = "0.1.0"
