"""A whole table from nothing: train what is missing, evaluate what is missing, and say beforehand how long that takes."""
