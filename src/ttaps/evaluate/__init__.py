"""Evaluation: data set x method x seed -> stored rows, and what they say. It resumes, shares work, and never needs a model to be read."""

from ttaps.evaluate.benchmark import Benchmark, clean_benchmark, open_benchmark
from ttaps.evaluate.export import export_csv
from ttaps.evaluate.plan import Item, Plan, Shard
from ttaps.evaluate.run import evaluate
from ttaps.evaluate.store import Experiment, Row, Store, merge
from ttaps.evaluate.summary import Line, Summary, compare, over_seeds, summarize, to_json

__all__ = [
    "Benchmark",
    "Experiment",
    "Item",
    "Line",
    "Plan",
    "Row",
    "Shard",
    "Store",
    "Summary",
    "clean_benchmark",
    "compare",
    "evaluate",
    "export_csv",
    "merge",
    "open_benchmark",
    "over_seeds",
    "summarize",
    "to_json",
]
