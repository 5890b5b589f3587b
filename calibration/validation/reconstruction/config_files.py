"""Writes model configurations that the catalogue lacks to files that a scenario can name."""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path


def config_file(name: str, config: Mapping[str, object]) -> str:
    """Path of a `config.json` with these fields; equal fields give the same path within this process."""
    text = json.dumps(config, sort_keys=True)
    folder = _folder() / hashlib.sha256(text.encode()).hexdigest()[:16] / name
    path = folder / "config.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return str(path)


@lru_cache(maxsize=1)
def _folder() -> Path:
    """This process's temporary folder, which workers read and which is removed at exit."""
    folder = tempfile.mkdtemp(prefix="decodesim-models-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
