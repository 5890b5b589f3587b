"""P-EAGLE: an EAGLE-3 head that makes all drafts in one pass, from mask tokens."""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.speculation.shape import ParallelChain

PEAGLE = register(
    Method(
        name="peagle",
        title="EAGLE-3 head, all drafts in one pass",
        source="vllm-project/vllm#32628; vLLM v1/spec_decode/llm_base_proposer.py",
        drafter="peagle",
        shape=ParallelChain(further_rows=-1),
        slots_per_request=-1,
        slots_per_draft=1,
        loses_last_match=True,
        engines={"vllm": "0.32"},
    )
)
