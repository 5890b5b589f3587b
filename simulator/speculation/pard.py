"""PARD: a draft model that makes all drafts in one pass, from mask tokens (arXiv 2504.18583)."""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.speculation.shape import ParallelChain

PARD = register(
    Method(
        name="pard",
        title="separate draft model, all drafts in one pass",
        source="arXiv 2504.18583; vLLM v1/spec_decode/draft_model.py",
        drafter="draft_model",
        shape=ParallelChain(),
        slots_per_draft=1,
        engines={"vllm": "0.32", "trtllm": "1.x"},
    )
)
