"""EAGLE: one decoder layer on the target's features and the next token's embedding (arXiv 2401.15077)."""

from simulator.speculation import register
from simulator.speculation.base import Method

EAGLE = register(
    Method(
        name="eagle",
        title="EAGLE head, chain or tree",
        source="arXiv 2401.15077; vLLM v1/spec_decode/llm_base_proposer.py; SGLang eagle_worker_v2.py",
        drafter="eagle",
        drafts_trees=True,
        loses_last_match=True,
        engines={"vllm": "0.7+", "sglang": "0.4+"},
    )
)
