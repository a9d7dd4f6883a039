"""What ``tools/torture.py`` does to the package, one module per part; docs/reliability.md says what is promised and what was found."""
