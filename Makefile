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
# In CI (where CI is set) all else has to have the hashes of requirements-ci.txt, if that was made for this platform and Python.
HERE := $(shell $(PYTHON) -c "import platform as p; print(p.system(), p.machine() + ', Python', p.python_version().rpartition('.')[0])")
PINNED := $(and $(CI),$(shell grep "on $(HERE)," requirements-ci.txt))
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check

$(READY): pyproject.toml $(if $(PINNED),requirements-ci.txt)
	$(PYTHON) -m venv .venv
	$(if $(CI),$(if $(PINNED),,@echo "requirements-ci.txt is not for $(HERE): nothing is pinned"))
	$(INSTALL) torch==2.13.0
	$(if $(PINNED),$(INSTALL) --require-hashes --no-deps --requirement requirements-ci.txt)
	$(INSTALL) $(if $(PINNED),--no-deps --no-build-isolation) --editable '.[corruptions,figures,umap,serve,dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
