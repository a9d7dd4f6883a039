"""Results in one sqlite file: one row per image, written as soon as computed, never twice. schema.sql has the tables.

The write-ahead log keeps a group of rows complete or absent if the process is killed, and lets others read and write meanwhile."""

import json
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.errors import TtapsError
from ttaps.evaluation.plan import Item, ItemOutcome
from ttaps.files import write_bytes

FILE = "results.sqlite"
PROJECTIONS = "projections"  # folder beside it, for the map that a report draws
VERSION = 2
APPLICATION = 0x74746170  # "ttap", in the file's header
LOCK_TIMEOUT = 60.0  # seconds to wait for another process's writing
TABLES = Path(__file__).with_name("schema.sql")
IDENTIFIED = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}"
SOURCES = """CREATE TABLE IF NOT EXISTS sources (
    data TEXT NOT NULL, digest TEXT NOT NULL, source TEXT NOT NULL, root TEXT NOT NULL, PRIMARY KEY (data, digest)
)"""  # not in every file of this format
ADD_ROW = f"INSERT OR IGNORE INTO results VALUES ({', '.join('?' * 12)})"
DESCRIBE_MODEL = "INSERT OR REPLACE INTO models VALUES (?, ?, ?)"
DESCRIBE_DATA = "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)"
Sources = dict[tuple[str, str], tuple[str, str]]  # data set and digest -> what to open for it, root of data sets


@dataclass(frozen=True)
class Experiment:
    """What a row's result depends on, apart from the image: any difference except in the spec makes another experiment."""

    model: str
    fingerprint: str  # hash of the model's weights
    data: str
    digest: str  # hash of the data set's labels, and of its images where they are the user's own
    spec: str  # the method and its settings as a user writes them, ``ttaps:tuned[lr=1]``
    settings: str  # all settings of the method as canonical JSON
    seed: int
    protocol: str = "episodic"  # or which images before it an image's result depends on (docs/evaluation.md)

    @property
    def method(self) -> str:
        """The method's name, without preset and settings."""
        return re.split(r"[:\[]", self.spec)[0]


@dataclass(frozen=True)
class Row:
    """One image's result; entry 0 of each trace is before adaptation, entry k after step k."""

    corruption: str
    severity: int
    image: int
    label: int
    predictions: tuple[int, ...]  # predicted classes; -1 where the probabilities were not numbers
    confidence: tuple[float, ...]  # probability of the predicted class (float32)
    label_probability: tuple[float, ...]  # probability of the true class (float32)
    seconds: float
    file: str = ""  # path within an image folder; empty for other data
    # Brier score before adaptation and after the last step (float32); empty in older results.
    brier: tuple[float, ...] = ()

    @property
    def item(self) -> Item:
        """Which image this is."""
        return Item(self.corruption, self.severity, self.image)

    @property
    def outcome(self) -> ItemOutcome:
        """Which image this is, and whether the first and the last prediction are right."""
        return *self.item, self.predictions[0] == self.label, self.predictions[-1] == self.label


class Store(AbstractContextManager["Store"]):
    """The results of a folder. Use as a context manager; ``write=False`` reads only and never makes a file."""

    def __init__(self, folder: Path, write: bool = True) -> None:
        self.path = folder / FILE
        if not write and not self.path.exists():
            raise TtapsError(f"There are no results in {folder} (no {FILE}).\nMake some with: ttaps evaluate")
        with self._clear_errors():
            if write:
                folder.mkdir(parents=True, exist_ok=True)
            # A reader needs the log of the last rows too, and the right to tidy it away; immutable reads the file without the log.
            log, mode = self.path.with_name(f"{FILE}-wal"), "rwc" if write else "rw"
            if not write and not os.access(folder, os.W_OK):
                mode = "ro" if log.exists() and log.stat().st_size else "ro&immutable=1"
            # Taking the lock before the first change means waiting for another writer instead of failing half-way.
            place = f"{self.path.resolve().as_uri()}?mode={mode}"
            self._connection = sqlite3.connect(place, LOCK_TIMEOUT, isolation_level="IMMEDIATE", uri=True)
            try:
                self._prepare(write)
            except BaseException:
                self.close()
                raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was added is already safe."""
        self._connection.close()

    def experiment(self, experiment: Experiment) -> int:
        """Return the id of an experiment, a new one if it is not stored yet."""
        values = {**vars(experiment), "method": experiment.method}
        same = " AND ".join(f"{name} = :{name}" for name in values if name != "spec")
        self._write(f"INSERT OR IGNORE INTO experiments ({', '.join(values)}) VALUES (:{', :'.join(values)})", [values])
        return next(self.select(f"SELECT id FROM experiments WHERE {same}", values))[0]

    def experiments(self) -> dict[int, Experiment]:
        """Return all experiments by id, in the order they were started."""
        names = ", ".join(field.name for field in fields(Experiment))
        found = self.select(f"SELECT id, {names} FROM experiments ORDER BY id")
        return {number: Experiment(*values) for number, *values in found}

    def rename(self, experiment: int, spec: str) -> None:
        """Rewrite an experiment's spec after the presets it names have changed."""
        self._write("UPDATE experiments SET spec = ? WHERE id = ?", [(spec, experiment)])

    def describe_model(self, fingerprint: str, facts: dict[str, Any], classes: Sequence[str] = ()) -> None:
        """Store what is known about a model (objective, seed, classes): no result depends on it, but tables show it."""
        self._write(DESCRIBE_MODEL, [(fingerprint, json.dumps(facts), json.dumps(classes))])

    def models(self) -> dict[str, dict[str, Any]]:
        """Return what is known about models, by fingerprint."""
        found = list(self.select("SELECT fingerprint, facts FROM models"))
        return {name: self._decode(facts) for name, facts in found}

    def classes(self) -> dict[str, tuple[str, ...]]:
        """Return the class names that labels and predictions index, by the model's fingerprint."""
        found = list(self.select("SELECT fingerprint, classes FROM models"))
        return {name: tuple(self._decode(names)) for name, names in found}

    def describe_data(self, sources: Sources) -> None:
        """Store the location of images: no result depends on it, but reports show some of them."""
        self._write(SOURCES, [()])
        self._write(DESCRIBE_DATA, ((*key, *value) for key, value in sources.items()))

    def sources(self) -> Sources:
        """Return the stored locations of data sets' images."""
        if not list(self.select("SELECT 1 FROM sqlite_master WHERE name = 'sources'")):
            return {}
        found = self.select("SELECT data, digest, source, root FROM sources")
        return {(data, digest): (source, root) for data, digest, source, root in found}

    def add(self, experiment: int, rows: Iterable[Row]) -> int:
        """Add rows, all or none, and return how many were new; existing rows are not changed."""
        return self._write(ADD_ROW, ((experiment, *_encode(row)) for row in rows))

    def outcomes(self, experiment: int) -> Iterator[ItemOutcome]:
        """Yield whether each image was right before adaptation and after the last step: all that a resumed run needs."""
        found = "corruption, severity, image, before = label, after = label"
        return self.select(f"SELECT {found} FROM results WHERE experiment = ?", [experiment])

    def select(self, query: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Iterator[Any]:
        """Yield the rows of an SQL query."""
        with self._clear_errors():
            yield from self._connection.execute(query, values)

    def _write(self, statement: str, values: Iterable[Any]) -> int:
        """Execute a statement with each of the values, all or none, and return how many rows changed."""
        with self._clear_errors(), self._connection:
            return self._connection.executemany(statement, values).rowcount

    def _prepare(self, write: bool) -> None:
        """Check what the file is; make the tables if it is new."""
        self._connection.execute(f"PRAGMA query_only = {not write}")
        if self._number("schema_version") == 0:
            if not write:
                raise TtapsError(f"There are no results in {self.path.parent} yet.\nMake some with: ttaps evaluate")
            self._enable_wal()
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                if self._number("schema_version") == 0:  # another process may have been faster
                    for statement in f"{TABLES.read_text('utf-8')}; {IDENTIFIED}".split(";"):
                        self._connection.execute(statement)
        if self._number("application_id") != APPLICATION:
            raise TtapsError(f"{self.path} is not a file of ttaps results.\nMove it away or choose another folder.")
        if (version := self._number("user_version")) != VERSION:
            remedy = "Choose another folder, or use the version of ttaps that made it."
            ours = f"this version of ttaps writes format {VERSION}"
            raise TtapsError(f"{self.path} has format {version}, {ours}.\n{remedy}")
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
                if not _is(error, "SQLITE_BUSY") or time.monotonic() > end:
                    raise
            time.sleep(0.01)

    def _decode(self, text: str) -> Any:
        try:
            return json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> TtapsError:
        remedy = "Move it away, or bring it back from a copy"
        return TtapsError(f"{self.path} is damaged or no results file ({error}).\n{remedy}.")

    def _number(self, pragma: str) -> int:
        return int(self._connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turn what sqlite and the system say into one line with the remedy."""
        try:
            yield
        except sqlite3.OperationalError as error:
            closed = _is(error, "SQLITE_READONLY", "SQLITE_CANTOPEN")
            remedy = "get the right to write there, or choose another folder" if closed else "run the command again"
            raise TtapsError(f"{self.path}: {error}.\nWhat was stored before is safe; {remedy}.") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the second: its own message quotes the file
            raise self._damaged(error) from error
        except OSError as error:
            raise TtapsError(f"Cannot write {self.path}: {error.strerror or error}.\nChoose another folder.") from error


def merge(folders: Sequence[Path], into: Path) -> int:
    """Merge the results of several folders into one, and return how many rows were new."""
    added = 0
    with Store(into) as target:
        for folder in folders:
            with Store(folder, write=False) as source:
                target._write(DESCRIBE_MODEL, source.select("SELECT * FROM models"))
                target.describe_data(source.sources())
                for number, experiment in source.experiments().items():
                    rows = source.select("SELECT * FROM results WHERE experiment = ?", [number])
                    own = target.experiment(experiment)
                    added += target._write(ADD_ROW, ((own, *values) for _, *values in rows))
    return added


def merge_projections(folders: Sequence[Path], into: Path) -> int:
    """Copy the projections of several folders into one, and return how many were new; existing ones are not changed."""
    added = 0
    for path in (path for folder in folders for path in sorted((folder / PROJECTIONS).glob("*.npz"))):
        target = into / PROJECTIONS / path.name
        if not target.exists():
            write_bytes(target, path.read_bytes())
            added += 1
    return added


def _is(error: sqlite3.Error, *kinds: str) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(kinds)  # finer kinds follow: SQLITE_BUSY_RECOVERY


def _encode(row: Row) -> tuple[str | int | float | bytes, ...]:
    probabilities = np.array([row.confidence, row.label_probability], dtype="<f4")
    trace = np.array(row.predictions, dtype="<i4").tobytes() + probabilities.tobytes()
    trace += np.array(row.brier, dtype="<f4").tobytes()
    ends = row.predictions[0], row.predictions[-1], row.confidence[0], row.confidence[-1]
    return *row.item, row.file, row.label, *ends, row.seconds, trace


def decode_traces(traces: Sequence[bytes]) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """Return the predictions, their confidence and the probability of the true class of stored traces of one length,
    (images, entries)."""
    length = len(traces[0]) // 12  # three numbers each; two Brier scores may follow
    content = b"".join(trace[: 12 * length] for trace in traces)
    numbers = np.frombuffer(content, dtype="<i4").reshape(-1, 3, length)
    return numbers[:, 0], numbers[:, 1].view("<f4"), numbers[:, 2].view("<f4")
