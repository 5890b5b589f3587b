"""vLLM's own benchmark client, one run a line: options of `vllm bench serve` in, the path of its file out.

    ENGINE_PYTHON bench_cells.py < runs.jsonl

A line is `{"arguments": ["--max-concurrency", "4", …], "file": "result.json"}`. The client's modules take ten
seconds to import, so one process serves all runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from vllm.benchmarks.serve import add_cli_args, main_async
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    """Run the client for every line of standard input."""
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        parser = FlexibleArgumentParser()
        add_cli_args(parser)
        options: argparse.Namespace = parser.parse_args(
            [*asked["arguments"], "--save-result", "--save-detailed"]
        )
        options.result_filename = asked["file"]
        with contextlib.redirect_stdout(sys.stderr):
            asyncio.run(main_async(options))
        print("done", flush=True)


if __name__ == "__main__":
    main()
