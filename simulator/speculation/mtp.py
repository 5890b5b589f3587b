"""MTP: the multi-token-prediction module of the target's own checkpoint, run K times (arXiv 2412.19437)."""

from simulator.speculation import register
from simulator.speculation.base import Method

MTP = register(
    Method(
        name="mtp",
        title="multi-token-prediction module, chain or tree",
        source="arXiv 2412.19437; vLLM v1/spec_decode/llm_base_proposer.py",
        drafter="mtp",
        drafts_trees=True,
        draft_from_target=True,
        loses_last_match=True,
        engines={"vllm": "0.7.3+", "sglang": "0.4.3+", "trtllm": "1.x"},
    )
)
