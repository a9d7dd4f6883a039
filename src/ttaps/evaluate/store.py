"""Results as rows in one sqlite file: one row per image, written as soon as it is known, never twice.

The write-ahead log makes a group of rows whole or absent whenever the process is killed, and lets others read and write meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from ttaps.errors import TtapsError
from ttaps.evaluate.plan import Item

FILE = "results.sqlite"
VERSION = 1
APPLICATION = 0x74746170  # "ttap", in the file's header
PATIENCE = 60.0  # seconds to wait for another process's writing
TABLES = (
    """CREATE TABLE experiments (
        id INTEGER PRIMARY KEY,
        model TEXT NOT NULL, fingerprint TEXT NOT NULL, data TEXT NOT NULL, digest TEXT NOT NULL,
        method TEXT NOT NULL, settings TEXT NOT NULL, seed INTEGER NOT NULL, protocol TEXT NOT NULL,
        UNIQUE (model, fingerprint, data, digest, method, settings, seed, protocol)
    )""",
    """CREATE TABLE rows (
        experiment INTEGER NOT NULL REFERENCES experiments, corruption TEXT NOT NULL, severity INTEGER NOT NULL,
        image INTEGER NOT NULL, label INTEGER NOT NULL, predictions BLOB NOT NULL, probabilities BLOB NOT NULL,
        seconds REAL NOT NULL,
        PRIMARY KEY (experiment, corruption, severity, image)
    ) WITHOUT ROWID""",
)
# Made when it is first needed: files of older versions have none.
MODELS = "CREATE TABLE IF NOT EXISTS models (fingerprint TEXT PRIMARY KEY, facts TEXT NOT NULL)"


@dataclass(frozen=True)
class Experiment:
    """What a row's result depends on, besides the image: any difference makes another experiment."""

    model: str
    fingerprint: str
    """Hash of the model's weights."""
    data: str
    digest: str
    """Hash of the data set's labels, and of its images where they are the user's own."""
    method: str
    settings: str
    """All settings of the method as canonical JSON."""
    seed: int
    protocol: str = "episodic"
    """``episodic``: each image by itself, and everything it changed is forgotten before the next. Others say what is kept: ``online``,
    ``momentum leak``, ``batches of 200``; results then depend on the order, which is the plan's, one corruption after the other."""


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
            self._connection = sqlite3.connect(self._address(write), timeout=PATIENCE, isolation_level=None, uri=True)
            try:
                self._prepare(write)
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was added is already safe."""
        self._connection.close()

    def experiment(self, experiment: Experiment) -> int:
        """Return the number of an experiment, a new one if it is not there yet."""
        values = dataclasses.asdict(experiment)
        names = ", ".join(values)
        same = " AND ".join(f"{name} = :{name}" for name in values)
        with self._clear_errors(), self._transaction():
            self._connection.execute(
                f"INSERT OR IGNORE INTO experiments ({names}) VALUES ({', '.join(f':{name}' for name in values)})",
                values,
            )
            return int(self._connection.execute(f"SELECT id FROM experiments WHERE {same}", values).fetchone()[0])

    def experiments(self) -> dict[int, Experiment]:
        """Return all experiments by number, in the order in which they were begun."""
        names = ", ".join(field.name for field in dataclasses.fields(Experiment))
        with self._clear_errors():
            found = self._connection.execute(f"SELECT id, {names} FROM experiments ORDER BY id").fetchall()
        return {number: Experiment(*values) for number, *values in found}

    def describe_model(self, fingerprint: str, facts: dict[str, Any]) -> None:
        """Keep what is known about a model (its objective, its seed): no result depends on it, but a table names it."""
        with self._clear_errors(), self._transaction():
            self._connection.execute(MODELS)
            self._connection.execute("INSERT OR REPLACE INTO models VALUES (?, ?)", (fingerprint, json.dumps(facts)))

    def models(self) -> dict[str, dict[str, Any]]:
        """Return what is known about models, by fingerprint."""
        with self._clear_errors():
            if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'models'").fetchone():
                return {}
            found = self._connection.execute("SELECT fingerprint, facts FROM models").fetchall()
        return {fingerprint: json.loads(facts) for fingerprint, facts in found}

    def add(self, experiment: int, rows: Iterable[Row]) -> int:
        """Add rows, all or none, and return how many were new; those that are there already stay as they are."""
        values = ((experiment, *_encode(row)) for row in rows)
        with self._clear_errors(), self._transaction():
            before = self._connection.total_changes
            self._connection.executemany("INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            return self._connection.total_changes - before

    def count(self, experiments: Sequence[int]) -> int:
        """Return how many rows some experiments have."""
        places = ", ".join("?" * len(experiments))
        with self._clear_errors():
            query = f"SELECT COUNT(*) FROM rows WHERE experiment IN ({places})"
            return int(self._connection.execute(query, tuple(experiments)).fetchone()[0])

    def items(self, experiment: int) -> Iterator[Item]:
        """Yield which images an experiment has, without reading their results."""
        query = "SELECT corruption, severity, image FROM rows WHERE experiment = ?"
        with self._clear_errors():
            for values in self._connection.execute(query, (experiment,)):
                yield Item(*values)

    def outcomes(self, experiment: int) -> Iterator[Outcome]:
        """Yield whether each image was right before adaptation and after the last step: all that a table needs, read fast."""
        query = "SELECT corruption, severity, image, label, predictions FROM rows WHERE experiment = ?"
        with self._clear_errors():
            for corruption, severity, image, label, predictions in self._connection.execute(query, (experiment,)):
                right = label.to_bytes(4, "little")  # as _encode writes predictions
                yield corruption, severity, image, predictions[:4] == right, predictions[-4:] == right

    def rows(self, experiment: int) -> Iterator[Row]:
        """Yield an experiment's rows in the order of corruption, severity and image."""
        query = (
            "SELECT corruption, severity, image, label, predictions, probabilities, seconds FROM rows "
            "WHERE experiment = ? ORDER BY corruption, severity, image"
        )
        with self._clear_errors():
            for values in self._connection.execute(query, (experiment,)):
                yield _decode(*values)

    def _address(self, write: bool) -> str:
        """Say to sqlite how to open the file: a reader needs the log of the last rows too, and the right to tidy it away."""
        mode = "rwc" if write else "rw" if os.access(self.path.parent, os.W_OK) else self._closed()
        return f"{self.path.resolve().as_uri()}?mode={mode}"

    def _closed(self) -> str:
        """Say how to read in a folder that is closed to us: ``immutable`` reads the file without the log, so only where there is none."""
        try:
            logged = self.path.with_name(f"{FILE}-wal").stat().st_size
        except FileNotFoundError:
            logged = 0
        return "ro" if logged else "ro&immutable=1"

    def _prepare(self, write: bool) -> None:
        """Check what the file is; make the tables if it is new."""
        self._connection.execute(f"PRAGMA query_only = {not write}")
        if self._number("schema_version") == 0:
            if not write:
                raise TtapsError(f"There are no results in {self.path.parent} yet.\nMake some with: ttaps evaluate")
            self._keep_log()
            with self._transaction():
                if self._number("schema_version") == 0:  # another process may have been faster
                    self._make_tables()
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

    def _keep_log(self) -> None:
        """Switch a new file to the write-ahead log; where two processes switch it at once, sqlite refuses both instead of waiting."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
            time.sleep(0.01)

    def _make_tables(self) -> None:
        for table in TABLES:
            self._connection.execute(table)
        self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
        self._connection.execute(f"PRAGMA user_version = {VERSION}")

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
                for fingerprint, facts in source.models().items():
                    target.describe_model(fingerprint, facts)
                for number, experiment in source.experiments().items():
                    added += target.add(target.experiment(experiment), source.rows(number))
    return added


def _encode(row: Row) -> tuple[str, int, int, int, bytes, bytes, float]:
    probabilities = np.array([row.confidence, row.label_probability], dtype="<f4")
    predictions = np.array(row.predictions, dtype="<i4")
    return *row.item, row.label, predictions.tobytes(), probabilities.tobytes(), row.seconds


def _decode(
    corruption: str, severity: int, image: int, label: int, predictions: bytes, probabilities: bytes, seconds: float
) -> Row:
    confidence, label_probability = np.frombuffer(probabilities, dtype="<f4").reshape(2, -1).tolist()
    trace = np.frombuffer(predictions, dtype="<i4").tolist()
    return Row(corruption, severity, image, label, tuple(trace), tuple(confidence), tuple(label_probability), seconds)
