"""Medusa: heads on the target's last hidden state, one for each position (arXiv 2401.10774)."""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.speculation.shape import Chain

MEDUSA = register(
    Method(
        name="medusa",
        title="Medusa heads, chain or tree",
        source="arXiv 2401.10774; vLLM 0.32 v1/spec_decode/medusa.py",
        drafter="medusa",
        shape=Chain(serial=False, first_pass_rows=1),
        drafts_trees=True,
        first_pass_reads_tokens=False,
        drafter_has_kv=False,
        draft_from_target=True,
        engines={"vllm": "to 0.32 (chains)", "trtllm": "older releases"},
    )
)
