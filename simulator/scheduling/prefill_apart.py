"""Prefill first and alone: decodes wait while prompts can be computed (SGLang without mixed chunks)."""

from simulator.scheduling import Rule, register

PREFILL_APART = register(
    Rule(
        name="prefill-apart",
        source="SGLang srt/managers/scheduler.py get_next_batch_to_run",
        mixes_prefill=False,
    )
)
