"""Draft model: a small language model of the same vocabulary (arXiv 2211.17192, 2302.01318)."""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.speculation.shape import Chain

DRAFT_MODEL = register(
    Method(
        name="draft_model",
        title="separate draft model, chain",
        source="arXiv 2211.17192, 2302.01318; vLLM v1/spec_decode/draft_model.py",
        drafter="draft_model",
        shape=Chain(first_pass_rows=1),
        slots_per_request=1,
        engines={"vllm": "to 0.10, 0.15+", "sglang": "0.5.23", "trtllm": "1.x"},
    )
)
