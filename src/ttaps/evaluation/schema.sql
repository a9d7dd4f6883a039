CREATE TABLE models (fingerprint TEXT PRIMARY KEY, facts TEXT NOT NULL, classes TEXT NOT NULL);

CREATE TABLE experiments (
    id INTEGER PRIMARY KEY,
    model TEXT NOT NULL, fingerprint TEXT NOT NULL, data TEXT NOT NULL, digest TEXT NOT NULL, spec TEXT NOT NULL,
    method TEXT NOT NULL, settings TEXT NOT NULL, protocol TEXT NOT NULL, seed INTEGER NOT NULL,
    UNIQUE (model, fingerprint, data, digest, method, settings, protocol, seed)
);

CREATE TABLE results (
    experiment INTEGER NOT NULL REFERENCES experiments, corruption TEXT NOT NULL, severity INTEGER NOT NULL,
    image INTEGER NOT NULL, file TEXT NOT NULL, label INTEGER NOT NULL, before INTEGER NOT NULL, after INTEGER NOT NULL,
    confidence_before REAL, confidence_after REAL, seconds REAL NOT NULL, trace BLOB NOT NULL,
    PRIMARY KEY (experiment, corruption, severity, image)
) WITHOUT ROWID;

CREATE VIEW results_view AS
    SELECT model, fingerprint, data, digest, spec, method, protocol, seed, corruption, severity, image, file, label,
        before, after, confidence_before, confidence_after, seconds
    FROM results JOIN experiments ON experiments.id = results.experiment
