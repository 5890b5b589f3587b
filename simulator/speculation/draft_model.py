"""Draft model: a small language model of the same vocabulary (arXiv 2211.17192, 2302.01318)."""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.step.state import ROWS_TOKENS_AND_REQUESTS

DRAFT_MODEL = register(
    Method(
        name="draft_model",
        title="separate draft model, chain",
        source="arXiv 2211.17192, 2302.01318; vLLM v1/spec_decode/draft_model.py",
        drafter="draft_model",
        first_pass_rows=ROWS_TOKENS_AND_REQUESTS,
        slots_per_request=1,
    )
)
