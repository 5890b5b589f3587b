"""SGLang's own parser on command lines, up to the settings of its scheduler: verdicts, a JSON document.

PYTHON_WITH_SGLANG tests/engine/sglang_parser.py MODEL_FOLDER DRAFT_FOLDER < cases.jsonl > verdicts.json
"""

# ruff: noqa: I001 (what SGLang imports and a CPU lacks is put into place first)
from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import absent  # noqa: F401

from sglang import __version__
from sglang.srt.runtime_context import get_memory, get_schedule, get_spec, publish
from sglang.srt.server_args import prepare_server_args


def verdict_of(case: dict[str, Any], folders: dict[str, str]) -> dict[str, Any]:
    """What the parser makes of one case, or why it refuses it."""
    messages = io.StringIO()
    with tempfile.TemporaryDirectory() as scratch:
        paths = {name: str(Path(scratch) / name) for name in case["files"]}
        for name, text in case["files"].items():
            Path(paths[name]).write_text(text, encoding="utf-8")
        arguments = [{**folders, **paths}.get(word, word) for word in case["arguments"]]
        try:
            with contextlib.redirect_stderr(messages):
                publish(prepare_server_args([*arguments, "--device", "cuda"]), role="scheduler")
        except SystemExit:
            return {"accepted": False, "why": messages.getvalue().strip().splitlines()[-1]}
        except Exception as error:
            return {"accepted": False, "why": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    schedule, spec = get_schedule(), get_spec()
    return {
        "accepted": True,
        "max_num_seqs": schedule.max_running_requests,
        "chunk_tokens": schedule.chunked_prefill_size,
        "prefix_caching": not get_memory().disable_radix_cache,
        "method": spec.speculative_algorithm,
        "steps": spec.speculative_num_steps,
        "top_k": spec.speculative_eagle_topk,
        "rows": spec.speculative_num_draft_tokens,
    }


def main() -> None:
    """Print the verdicts of the cases on standard input."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    model, draft = sys.argv[1:]
    answer, sys.stdout = sys.stdout, sys.stderr
    cases = [json.loads(line) for line in sys.stdin]
    verdicts = {case["name"]: verdict_of(case, {"MODEL": model, "DRAFT": draft}) for case in cases}
    print(json.dumps({"sglang": __version__, "verdicts": verdicts}, indent=1), file=answer)


if __name__ == "__main__":
    main()
