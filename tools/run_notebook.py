"""Run the cells of examples/ttaps.ipynb in order and store their outputs in it: python tools/run_notebook.py

Needs nbclient and ipykernel, which nothing else here does; a test runs the same cells without them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples" / "ttaps.ipynb"


def is_bar(output: dict[str, Any]) -> bool:
    """Whether an output is a progress bar or a line on stderr, which rich displays as HTML; figures are images."""
    return output.get("name") == "stderr" or (
        output["output_type"] == "display_data" and "image/png" not in output["data"]
    )


def main() -> None:
    """Write the notebook anew, without bars and what changes from run to run: times of execution, the version of Python."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, record_timing=False, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        kept = [output for output in cell.get("outputs", ()) if not is_bar(output)]
        cell.update({"outputs": kept} if cell.cell_type == "code" else {})
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
