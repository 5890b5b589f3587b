"""EAGLE-3: a head on fused low, middle and high features, trained on its own drafts (arXiv 2503.01840)."""

from simulator.speculation import register
from simulator.speculation.base import Method

EAGLE3 = register(
    Method(
        name="eagle3",
        title="EAGLE-3 head, chain",
        source="arXiv 2503.01840; vLLM v1/spec_decode/llm_base_proposer.py",
        drafter="eagle3",
        loses_last_match=True,
    )
)
