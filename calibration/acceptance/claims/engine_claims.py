"""Rules of thumb that what the serving engines do decides."""

from __future__ import annotations

from calibration.acceptance.claims.claim import Claim, table
from simulator.engines.presets import presets

_ONE_STEP = "mixed"
"""The scheduler that puts prompt chunks and verified drafts into one step."""


def chunked_prefill() -> Claim:
    """Speculation excludes chunked prefill."""
    known = presets().values()
    rows = [
        [
            f"`{preset.name}`",
            f"{preset.engine} {preset.version}",
            "yes" if preset.scheduler == _ONE_STEP else "no",
        ]
        for preset in known
    ]
    apart = {preset.engine for preset in known if preset.scheduler != _ONE_STEP}
    return Claim(
        "Speculation and chunked prefill exclude each other.",
        "holds where",
        "the engine is SGLang, or vLLM before its V1 engine",
        f"{table(['preset', 'engine', 'prompt chunks and drafts in one step'], rows)}\n\nvLLM's V0 engine "
        "allowed both only with a drafter on one GPU ([vllm#9291](https://github.com/vllm-project/vllm/pull/"
        "9291)); V1 combines them for all methods. SGLang turns mixed chunks off under speculation, so that "
        "a long prompt stops all decoding ([sglang#32549](https://github.com/sgl-project/sglang/issues/"
        "32549)).",
        "decodesim methods",
        borne_out="SGLang" in apart and "vLLM" not in apart,
    )


def engine_claims() -> list[Claim]:
    """All of them, in the order of the page."""
    return [chunked_prefill()]
