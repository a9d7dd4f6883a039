"""Results in one sqlite file: one row per image, written as soon as it is known, never twice. docs/evaluation.md has the tables.

The write-ahead log makes a group of rows complete or absent whenever the process is killed, and lets others read and write meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ttaps.errors import TtapsError
from ttaps.evaluate.plan import Item

FILE = "results.sqlite"
VERSION = 2
APPLICATION = 0x74746170  # "ttap", in the file's header
LOCK_TIMEOUT = 60.0  # seconds to wait for another process's writing
SCHEMA = (
    "CREATE TABLE models (fingerprint TEXT PRIMARY KEY, facts TEXT NOT NULL, classes TEXT NOT NULL)",
    """CREATE TABLE experiments (
        id INTEGER PRIMARY KEY,
        model TEXT NOT NULL, fingerprint TEXT NOT NULL, data TEXT NOT NULL, digest TEXT NOT NULL, spec TEXT NOT NULL,
        method TEXT NOT NULL, settings TEXT NOT NULL, protocol TEXT NOT NULL, seed INTEGER NOT NULL,
        UNIQUE (model, fingerprint, data, digest, method, settings, protocol, seed)
    )""",
    """CREATE TABLE results (
        experiment INTEGER NOT NULL REFERENCES experiments, corruption TEXT NOT NULL, severity INTEGER NOT NULL,
        image INTEGER NOT NULL, file TEXT NOT NULL, label INTEGER NOT NULL, before INTEGER NOT NULL, after INTEGER NOT NULL,
        confidence_before REAL, confidence_after REAL, seconds REAL NOT NULL, trace BLOB NOT NULL,
        PRIMARY KEY (experiment, corruption, severity, image)
    ) WITHOUT ROWID""",
    """CREATE VIEW results_view AS
        SELECT model, fingerprint, data, digest, spec, method, protocol, seed, corruption, severity, image, file, label,
            before, after, confidence_before, confidence_after, seconds
        FROM results JOIN experiments ON experiments.id = results.experiment""",
)


@dataclass(frozen=True)
class Experiment:
    """What a row's result depends on, besides the image: any difference but the spec's makes another experiment."""

    model: str
    fingerprint: str
    """Hash of the model's weights."""
    data: str
    digest: str
    """Hash of the data set's labels, and of its images where they are the user's own."""
    spec: str
    """The method and its settings as a user writes them, ``ttaps:tuned[lr=1]``."""
    settings: str
    """All settings of the method as canonical JSON."""
    seed: int
    protocol: str = "episodic"
    """What an image's result depends on besides the image: nothing, or the images before it (docs/evaluation.md)."""

    @property
    def method(self) -> str:
        """The method's name, without preset and settings."""
        return re.split(r"[:\[]", self.spec)[0]

    def columns(self) -> dict[str, str | int]:
        """Return its columns in the table of experiments."""
        return {**vars(self), "method": self.method}


@dataclass(frozen=True)
class Row:
    """One image's result; entry 0 of each trace is before adaptation, entry k after step k."""

    corruption: str
    severity: int
    image: int
    label: int
    predictions: tuple[int, ...]
    """Predicted classes; -1 where the probabilities were not numbers."""
    confidence: tuple[float, ...]
    """Probability of the predicted class (float32)."""
    label_probability: tuple[float, ...]
    """Probability of the true class (float32)."""
    seconds: float
    file: str = ""
    """Path of the image within an image folder; empty for other data."""

    @property
    def item(self) -> Item:
        """Which image this is."""
        return Item(self.corruption, self.severity, self.image)

    def right(self, step: int) -> bool:
        """Say whether the prediction after ``step`` steps is right; -1 is the last one."""
        return self.predictions[step] == self.label


Outcome = tuple[str, int, int, bool, bool]
"""Corruption, severity, image, and whether its prediction was right before and after."""


class Store:
    """The results of a folder. Use as a context manager; ``write=False`` reads only and never makes a file."""

    def __init__(self, folder: Path, write: bool = True) -> None:
        self.path = folder / FILE
        if not write and not self.path.exists():
            raise TtapsError(f"There are no results in {folder} (no {FILE}).\nMake some with: ttaps evaluate")
        with self._clear_errors():
            if write:
                folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self._uri(write), timeout=LOCK_TIMEOUT, isolation_level=None, uri=True)
            try:
                self._prepare(write)
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was added is already safe."""
        self._connection.close()

    def experiment(self, experiment: Experiment) -> int:
        """Return the number of an experiment, a new one if it is not there yet."""
        values = experiment.columns()
        same = " AND ".join(f"{name} = :{name}" for name in values if name != "spec")
        insert = f"INSERT OR IGNORE INTO experiments ({', '.join(values)}) VALUES (:{', :'.join(values)})"
        with self._clear_errors(), self._transaction():
            self._connection.execute(insert, values)
            return int(self._connection.execute(f"SELECT id FROM experiments WHERE {same}", values).fetchone()[0])

    def experiments(self) -> dict[int, Experiment]:
        """Return all experiments by number, in the order in which they were begun."""
        names = ", ".join(field.name for field in dataclasses.fields(Experiment))
        found = self.select(f"SELECT id, {names} FROM experiments ORDER BY id")
        return {number: Experiment(*values) for number, *values in found}

    def rename(self, experiment: int, spec: str) -> None:
        """Write an experiment's settings another way, where the presets that its spec names have changed."""
        with self._clear_errors(), self._transaction():
            self._connection.execute("UPDATE experiments SET spec = ? WHERE id = ?", (spec, experiment))

    def describe_model(self, fingerprint: str, facts: dict[str, Any], classes: Sequence[str] = ()) -> None:
        """Keep what is known about a model (its objective, its seed, its classes): no result depends on it, but tables name it."""
        values = (fingerprint, json.dumps(facts), json.dumps(classes))
        with self._clear_errors(), self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO models VALUES (?, ?, ?)", values)

    def models(self) -> dict[str, dict[str, Any]]:
        """Return what is known about models, by fingerprint."""
        return {name: json.loads(facts) for name, facts in self.select("SELECT fingerprint, facts FROM models")}

    def classes(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the classes that labels and predictions are numbers of, by the model's fingerprint."""
        return {
            name: tuple(json.loads(names)) for name, names in self.select("SELECT fingerprint, classes FROM models")
        }

    def add(self, experiment: int, rows: Iterable[Row]) -> int:
        """Add rows, all or none, and return how many were new; those that are there already stay as they are."""
        values = ((experiment, *_encode(row)) for row in rows)
        with self._clear_errors(), self._transaction():
            before = self._connection.total_changes
            self._connection.executemany(f"INSERT OR IGNORE INTO results VALUES ({', '.join('?' * 12)})", values)
            return self._connection.total_changes - before

    def outcomes(self, experiment: int) -> Iterator[Outcome]:
        """Yield whether each image was right before adaptation and after the last step: all that a resumed run needs."""
        found = "corruption, severity, image, before = label, after = label"
        return self.select(f"SELECT {found} FROM results WHERE experiment = ?", experiment)

    def rows(self, experiment: int) -> Iterator[Row]:
        """Yield an experiment's rows in the order of corruption, severity and image."""
        found = "corruption, severity, image, label, trace, seconds, file"
        query = f"SELECT {found} FROM results WHERE experiment = ? ORDER BY corruption, severity, image"
        for *item, trace, seconds, file in self.select(query, experiment):
            numbers = np.frombuffer(trace, dtype="<i4").reshape(3, -1)
            traces = [numbers[0], *numbers[1:].view("<f4")]
            values = [*item, *(tuple(part.tolist()) for part in traces), seconds, file]
            yield Row(*values)

    def select(self, query: str, *values: str | int) -> Iterator[Any]:
        """Yield what an SQL query finds."""
        with self._clear_errors():
            yield from self._connection.execute(query, values)

    def _uri(self, write: bool) -> str:
        """Return how sqlite is to open the file: a reader needs the log of the last rows too, and the right to tidy it away.

        In a folder that is not writable, ``immutable`` reads the file without the log, so only where there is none.
        """
        log = self.path.with_name(f"{FILE}-wal")
        if write or os.access(self.path.parent, os.W_OK):
            mode = "rwc" if write else "rw"
        else:
            mode = "ro" if log.exists() and log.stat().st_size else "ro&immutable=1"
        return f"{self.path.resolve().as_uri()}?mode={mode}"

    def _prepare(self, write: bool) -> None:
        """Check what the file is; make the tables if it is new."""
        self._connection.execute(f"PRAGMA query_only = {not write}")
        if self._number("schema_version") == 0:
            if not write:
                raise TtapsError(f"There are no results in {self.path.parent} yet.\nMake some with: ttaps evaluate")
            self._enable_wal()
            with self._transaction():
                if self._number("schema_version") == 0:  # another process may have been faster
                    header = f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {VERSION}"
                    for statement in (*SCHEMA, *header):
                        self._connection.execute(statement)
        if self._number("application_id") != APPLICATION:
            raise TtapsError(f"{self.path} is not a file of ttaps results.\nMove it away or choose another folder.")
        version = self._number("user_version")
        if version != VERSION:
            raise TtapsError(
                f"{self.path} has format {version}, this version of ttaps writes format {VERSION}.\n"
                "Choose another folder, or use the version of ttaps that made it."
            )
        # A power cut may cost the last rows, never the file; a killed process costs neither, and nothing waits for the disk.
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def _enable_wal(self) -> None:
        """Switch a new file to the write-ahead log; where two processes switch it at once, sqlite refuses both instead of waiting."""
        end = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
            time.sleep(0.01)

    def _number(self, pragma: str) -> int:
        return int(self._connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; taking the lock first means waiting for another writer instead of failing half-way."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turn what sqlite and the system say into one line with the remedy."""
        try:
            yield
        except sqlite3.OperationalError as error:
            closed = _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
            remedy = "get the right to write there, or choose another folder" if closed else "run the command again"
            raise TtapsError(f"{self.path}: {error}.\nWhat was stored before is safe; {remedy}.") from error
        except sqlite3.DatabaseError as error:
            raise TtapsError(
                f"{self.path} is damaged or no results file ({error}).\nMove it away, or bring it back from a copy."
            ) from error
        except OSError as error:
            raise TtapsError(f"Cannot write {self.path}: {error.strerror or error}.\nChoose another folder.") from error


def _code(error: sqlite3.Error) -> int:
    """Return sqlite's number of an error, without its finer divisions."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def merge(folders: Sequence[Path], into: Path) -> int:
    """Add the results of several folders to one, and return how many rows were new."""
    added = 0
    with Store(into) as target:
        for folder in folders:
            with Store(folder, write=False) as source:
                classes = source.classes()
                for fingerprint, facts in source.models().items():
                    target.describe_model(fingerprint, facts, classes[fingerprint])
                for number, experiment in source.experiments().items():
                    added += target.add(target.experiment(experiment), source.rows(number))
    return added


def _encode(row: Row) -> tuple[str | int | float | bytes, ...]:
    probabilities = np.array([row.confidence, row.label_probability], dtype="<f4")
    trace = np.array(row.predictions, dtype="<i4").tobytes() + probabilities.tobytes()
    ends = row.predictions[0], row.predictions[-1], row.confidence[0], row.confidence[-1]
    return *row.item, row.file, row.label, *ends, row.seconds, trace
