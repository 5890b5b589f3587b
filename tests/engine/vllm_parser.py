"""vLLM's own parser on command lines, up to the configuration of the engine: verdicts, a JSON document.

ENGINE_PYTHON tests/engine/vllm_parser.py MODEL_FOLDER DRAFT_FOLDER < cases.jsonl > verdicts.json
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

from vllm import __version__
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup


def verdict_of(case: dict[str, Any], folders: dict[str, str]) -> dict[str, Any]:
    """What the parser makes of one case, or why it refuses it."""
    arguments = [_filled(argument, folders) for argument in case["arguments"]]
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            options = make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(arguments)
            options.model = options.model_tag
            validate_parsed_serve_args(options)
            config = AsyncEngineArgs.from_cli_args(options).create_engine_config()
    except SystemExit:
        return {"accepted": False, "why": messages.getvalue().strip().splitlines()[-1]}
    except Exception as error:
        return {"accepted": False, "why": _reason(error)}
    speculative, scheduler = config.speculative_config, config.scheduler_config
    verdict = {
        "accepted": True,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "chunked_prefill": scheduler.enable_chunked_prefill,
        "prefix_caching": config.cache_config.enable_prefix_caching,
        "method": speculative and speculative.method,
        "draft_length": speculative and speculative.num_speculative_tokens,
    }
    return verdict | _looked_up(config) if case["schedule"] else verdict


def _looked_up(config: Any) -> dict[str, Any]:
    """K by the number of requests of a step; a faulty schedule is refused when the engine starts."""
    speculative = config.speculative_config
    try:
        lengths = build_dynamic_sd_schedule_lookup(
            speculative.num_speculative_tokens_per_batch_size,
            config.scheduler_config.max_num_seqs,
            speculative.num_speculative_tokens,
        )
    except ValueError as error:
        return {"accepted": False, "why": f"when the engine starts: {error}"}
    return {"by_batch": list(lengths[1:])}


def _filled(argument: str, folders: dict[str, str]) -> str:
    """The argument with folders in the places of their names."""
    if argument.startswith("{"):
        config = json.loads(argument)
        return json.dumps(
            {key: folders.get(value, value) if key == "model" else value for key, value in config.items()}
        )
    return folders.get(argument, argument)


def _reason(error: Exception) -> str:
    """The reason in one line, without pydantic's frame around it."""
    lines = [line.strip().partition(" [type=")[0] for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"


def main() -> None:
    """Print the verdicts of the cases on standard input."""
    model, draft = sys.argv[1:]
    answer, sys.stdout = sys.stdout, sys.stderr
    cases = [json.loads(line) for line in sys.stdin]
    verdicts = {case["name"]: verdict_of(case, {"MODEL": model, "DRAFT": draft}) for case in cases}
    print(json.dumps({"vllm": __version__, "verdicts": verdicts}, indent=1), file=answer)


if __name__ == "__main__":
    main()
