# A fresh clone needs nothing but these two:  make demo   make test
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test lint types clean

demo: $(READY)
	$(BIN)/ttaps demo

test: lint types
	$(BIN)/pytest -n 2
	@command -v chromium > /dev/null || echo "Tests in a browser were skipped; they need Chromium: apt-get install -y chromium"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# torch goes first and pinned: any looser request may bring gigabytes of CUDA libraries to a machine without a GPU.
$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[corruptions,figures,umap,serve,dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
