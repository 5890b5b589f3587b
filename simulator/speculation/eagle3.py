"""EAGLE-3: a head on fused low, middle and high features, trained on its own drafts (arXiv 2503.01840)."""

from simulator.speculation import register
from simulator.speculation.base import Method

EAGLE3 = register(
    Method(
        name="eagle3",
        title="EAGLE-3 head, chain or tree",
        source="arXiv 2503.01840; vLLM v1/spec_decode/llm_base_proposer.py; SGLang eagle_worker_v2.py",
        drafter="eagle3",
        drafts_trees=True,
        loses_last_match=True,
        engines={"vllm": "0.8.5+", "sglang": "0.4.5+", "trtllm": "1.x"},
    )
)
