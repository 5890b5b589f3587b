"""Prompts for the engine: pieces of Python's standard library, cut to one length by the target's tokenizer.

Code continues in ways that prompt lookup can find, so that it gains at some loads and loses at others.
"""

from __future__ import annotations

import json
import random
import sysconfig
from pathlib import Path
from typing import Any

from calibration.engine_loop.matrix import PROMPT_TOKENS
from calibration.optional import need

PROMPTS = 600
_SEED, _CHARACTERS = 14, 600
_LONG_BYTES = 20_000
"""Modules that are long enough to cut many pieces from."""


def write_prompts(path: Path, tokenizer: Path) -> None:
    """Write the file that vLLM's client reads, if it is not there."""
    if path.exists():
        return
    transformers: Any = need("transformers", "lm")
    encoder = transformers.AutoTokenizer.from_pretrained(tokenizer, local_files_only=True)
    library = Path(sysconfig.get_paths()["stdlib"])
    files = [path for path in sorted(library.glob("*.py")) if path.stat().st_size >= _LONG_BYTES]
    texts = [path.read_text("utf-8") for path in files]
    draw, lines = random.Random(_SEED), list[str]()
    while len(lines) < PROMPTS:
        text = draw.choice(texts)
        start = draw.randrange(len(text) - _CHARACTERS)
        tokens = encoder.encode(text[start : start + _CHARACTERS], add_special_tokens=False)[:PROMPT_TOKENS]
        lines.append(json.dumps({"prompt": encoder.decode(tokens)}))
    path.write_text("\n".join(lines) + "\n", "utf-8")
