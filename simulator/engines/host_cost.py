"""Host (CPU) times of a serving engine: those of a step, and those of a request before its first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from simulator.engines.preset_field import BELOW_LIMIT, declared, seconds


@dataclass(frozen=True)
class HostCost:
    """Host seconds. A step lasts max(GPU, hidden) + exposed.

    The GPU waits for the exposed part: step, sequences and drafting. An asynchronous engine does the hidden
    part for the next step while the GPU runs this one, so it shows only when the GPU is faster; a synchronous
    engine hides nothing. A request passes client, front end and tokenizer before it reaches the scheduler.
    Raises ValueError for a time below 0 or beyond what a preset's file may have.
    """

    step_s: Annotated[
        float,
        seconds(
            "host time of a step that the GPU waits for",
            "fitted for engines that overlap, assumed for synchronous vLLM and torch",
            label="per step",
        ),
    ]
    per_sequence_s: Annotated[
        float,
        seconds("the same of each sequence in the step", "assumed", label="per sequence in the step"),
    ]
    draft_pass_s: Annotated[
        float,
        seconds(
            "the same of each pass of the drafter, beyond its GPU time",
            "public profiles and traces of vLLM; fitted for SGLang; assumed elsewhere",
            label="per draft pass",
        ),
    ]
    draft_step_s: Annotated[
        float,
        seconds(
            "the same, once, of a step that drafts",
            "a profile of vLLM 0.10; assumed elsewhere",
            label="per step that drafts",
        ),
    ] = 0.0
    lookup_step_s: Annotated[
        float,
        seconds(
            "what prompt lookup on the host adds to a step that drafts",
            "assumed for vLLM from 0.14 on",
            label="per step that drafts by prompt lookup on the host",
        ),
    ] = 0.0
    lookup_per_sequence_s: Annotated[
        float,
        seconds(
            "what prompt lookup on the host adds for each sequence that drafts",
            "published for SGLang (below)",
            label="per sequence that drafts by prompt lookup on the host",
        ),
    ] = 0.0
    hidden_step_s: Annotated[
        float,
        seconds(
            "host time of a step behind the GPU: it shows when the GPU is faster, and when the engine does "
            "not overlap",
            "fitted for SGLang, assumed elsewhere",
            label="per step, behind the GPU",
        ),
    ] = 0.0
    hidden_per_sequence_s: Annotated[
        float,
        seconds("the same of each sequence", "assumed", label="per sequence, behind the GPU"),
    ] = 0.0
    eager_call_s: Annotated[
        float,
        seconds(
            "host time of one operation of a pass that no CUDA graph holds: such a pass of the target lasts "
            "at least as long as all of its calls",
            "forwards of SGLang measured without graphs; assumed for torch; 0 elsewhere, where compiled "
            "code launches faster or nothing is known",
            label="per operation outside a CUDA graph",
        ),
    ] = 0.0
    draft_call_s: Annotated[
        float,
        seconds(
            "host time of one operation of a drafter's pass that no CUDA graph holds",
            "assumed as `eager_call_s` of SGLang",
            label="per operation of a drafter outside a CUDA graph",
        ),
    ] = 0.0
    request_latency_s: Annotated[
        float,
        seconds(
            "what passes between a client's send and the front end, and on the way back: connection, HTTP, "
            "hops between processes",
            "assumed, for a client next to the server: it depends on where the client is",
            label="per request, on the way between client and front end",
        ),
    ] = 0.0
    request_s: Annotated[
        float,
        seconds(
            "work of the front end's event loop for a request: parsing, the chat template, handing over. The "
            "loop shares its time among all requests at once (processor sharing), so that of many requests "
            "none is served until nearly all are parsed",
            "fitted, one value for all engines",
            label="per request, in the front end",
        ),
    ] = 0.0
    prompt_token_s: Annotated[
        float,
        seconds(
            "what the front end's tokenizer takes for a token of a prompt, one prompt after another",
            "1.9 to 2.05 MB/s of one thread (huggingface/tokenizers#1582), at 4.4 bytes a token",
            label="per prompt token, in the tokenizer",
            limit=1e-3,
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        for name, field in declared(HostCost).items():
            value, limit_s = getattr(self, name), field.high / BELOW_LIMIT
            if not 0 <= value < limit_s:
                raise ValueError(f"host.{name} must lie in 0..{limit_s:g} s, not {value}")

    def exposed_s(self, sequences: float, draft_passes: float = 0) -> float:
        """Host seconds that always lengthen the step."""
        drafting = self.draft_step_s + self.draft_pass_s * draft_passes if draft_passes > 0 else 0.0
        return self.step_s + self.per_sequence_s * sequences + drafting
