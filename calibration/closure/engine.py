"""Plain and speculative decoding of one batch with a static cache, for the closed loop.

Every sequence starts after a part of a prompt that was read before. `restart` returns there by lowering
lengths, so that a context can be measured for as long as needed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.closure.clock import Clock
from calibration.closure.prompt_cache import PromptCache
from calibration.closure.stage import GraphStage, stage
from calibration.decoder.decoder import Decoder
from calibration.decoder.sampling import accept_greedy, accept_sampled, greedy, sample

_CUDA_SPAN = 64
"""Attention kernels of GPUs need masks of complete tiles."""


class Decoding:
    """A batch of a target: its cache, the last emitted tokens, and the length of every sequence."""

    def __init__(
        self,
        target: Decoder,
        prompts: PromptCache,
        batch: int,
        context: int,
        room: int,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Start after `context` tokens; `room` more fit before `restart`."""
        self.target, self.batch, self.context, self.temperature = target, batch, context, temperature
        self.device = target.device
        self.on_gpu = self.device.type == "cuda"
        self.capacity = context + room
        if self.on_gpu:
            self.capacity = -(-self.capacity // _CUDA_SPAN) * _CUDA_SPAN
        self.cache = target.cache(batch, self.capacity)
        prompts.fill(self.cache, context)
        self.first = prompts.first(batch, context)
        self.last = self.first.clone()
        self.lengths = torch.full((batch,), context, dtype=torch.int64, device=self.device)
        self.longest = context
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.uniforms = torch.zeros(batch, 1, dtype=torch.float64, device=self.device)
        self.logits = torch.empty(0)

    def restart(self) -> None:
        """Return to the end of the prompts."""
        self.lengths.fill_(self.context)
        self.last.copy_(self.first)
        self.longest = self.context

    def span(self, queries: int) -> int:
        """Cache positions that a pass attends to: up to the longest sequence, or all for a graph on a GPU."""
        return self.capacity if self.on_gpu else self.longest + queries

    def update_longest(self) -> None:
        """Copy the length of the longest sequence to the host."""
        self.longest = int(self.lengths.max())

    def advanced(self) -> None:
        """Update `longest` within a step on a CPU, where spans follow lengths; a GPU would have to wait."""
        if not self.on_gpu:
            self.update_longest()

    def draw(self) -> None:
        """Draw new uniforms if tokens are sampled."""
        if self.temperature:
            self.uniforms.uniform_(generator=self.generator)


class PlainDecoding(Decoding):
    """One token per sequence and step."""

    def __init__(
        self,
        target: Decoder,
        prompts: PromptCache,
        batch: int,
        context: int,
        room: int,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(target, prompts, batch, context, room, temperature, seed)
        self.nothing = torch.zeros(batch, 0, dtype=torch.int64, device=self.device)
        self._pass = stage(self._score, self.device, self.restart)
        self._accept = stage(self._choose, self.device, self.restart)

    def step(self, clock: Clock) -> None:
        """Decode one token of every sequence. Sets marks after pass and accept."""
        self.draw()
        self._pass()
        clock.mark()
        self._accept()
        self.advanced()
        clock.mark()

    def _score(self) -> None:
        hidden = self.target.forward(self.last[:, None], self.lengths, self.cache, self.span(1))
        self.logits = self.target.head(hidden)

    def _choose(self) -> None:
        if self.temperature:
            distributions = self.logits[:, :0].float()
            _, token = accept_sampled(
                self.logits, distributions, self.nothing, self.uniforms, self.temperature
            )
        else:
            _, token = accept_greedy(self.logits, self.nothing)
        self.lengths += 1
        self.last.copy_(token)


class SpeculativeDecoding(Decoding):
    """Verify, accept, draft: up to K + 1 tokens per sequence and cycle.

    Drafts are a chain of K serial passes of a small decoder with its own cache. Its first pass reads all rows
    of the verify pass and the token after them (K + 2 rows), as in vLLM's draft models. The drafter must be
    the target's first layers, so that it has read the prompts as well. With `outcomes`, drafts are made and
    verified as usual, but the numbers of accepted drafts are imposed.
    """

    def __init__(
        self,
        target: Decoder,
        drafter: Decoder,
        prompts: PromptCache,
        batch: int,
        context: int,
        room: int,
        draft_length: int,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(target, prompts, batch, context, room + draft_length + 2, temperature, seed)
        self.drafter, self.draft_length = drafter, draft_length
        self.draft_cache = drafter.cache(batch, self.capacity)
        prompts.fill(self.draft_cache, context)
        self.uniforms = torch.zeros(batch, 2 * draft_length + 1, dtype=torch.float64, device=self.device)
        zeros = torch.zeros(batch, dtype=torch.int64, device=self.device)
        self.accepted, self.outcomes, self.next = zeros.clone(), zeros.clone(), zeros.clone()
        self.before = self.lengths.clone()
        self.longest_before = context
        self.drafts = torch.zeros(batch, draft_length, dtype=torch.int64, device=self.device)
        self.distributions = torch.zeros(0, device=self.device)
        if temperature:
            self.distributions = torch.zeros(batch, draft_length, target.shape.vocab, device=self.device)
        self._draft_from_prompt()
        self.first_drafts, self.first_distributions = self.drafts.clone(), self.distributions.clone()
        self._verify = stage(self._score, self.device, self.restart)
        self._accept = stage(self._verify_drafts, self.device, self.restart)
        self._impose = stage(self._take_outcomes, self.device, self.restart)
        self._first_pass = stage(self._read_and_draft, self.device, self.restart)
        self._later_passes = [self._later_pass(index) for index in range(1, draft_length)]

    def restart(self) -> None:
        """Return to the end of the prompts, with the drafts made there."""
        super().restart()
        self.before.copy_(self.lengths)
        self.longest_before = self.context
        self.drafts.copy_(self.first_drafts)
        self.distributions.copy_(self.first_distributions)
        self.accepted.zero_()

    def cycle(self, clock: Clock, outcomes: Tensor | None = None) -> None:
        """One cycle; `outcomes` (b,) imposes accepted drafts. Sets marks after verify, accept and each draft
        pass.
        """
        self.draw()
        self._verify()
        clock.mark()
        self._accept()
        if outcomes is not None:
            self.outcomes.copy_(outcomes)
            self._impose()
        self.longest_before = self.longest
        self.advanced()
        clock.mark()
        self._first_pass()
        clock.mark()
        for later_pass in self._later_passes:
            later_pass()
            clock.mark()

    def _score(self) -> None:
        tokens = torch.cat((self.last[:, None], self.drafts), dim=1)
        span = self.span(self.draft_length + 1)
        self.logits = self.target.head(self.target.forward(tokens, self.lengths, self.cache, span))

    def _verify_drafts(self) -> None:
        if self.temperature:
            uniforms = self.uniforms[:, : self.draft_length + 1]
            result = accept_sampled(self.logits, self.distributions, self.drafts, uniforms, self.temperature)
        else:
            result = accept_greedy(self.logits, self.drafts)
        self.accepted.copy_(result[0])
        self.next.copy_(result[1])
        self.before.copy_(self.lengths)
        self.lengths.add_(self.accepted + 1)

    def _take_outcomes(self) -> None:
        self.accepted.copy_(self.outcomes)
        self.lengths.copy_(self.before).add_(self.accepted + 1)

    def _read_and_draft(self) -> None:
        """The drafter reads the verified rows, with the token after the accepted ones in its position, and
        drafts.
        """
        after = (self.accepted + 1)[:, None]
        tokens = torch.cat((self.last[:, None], self.drafts, self.next[:, None]), dim=1)
        tokens = tokens.scatter(1, after, self.next[:, None])
        span = self.capacity if self.on_gpu else self.longest_before + self.draft_length + 2
        hidden = self.drafter.forward(tokens, self.before, self.draft_cache, span)
        hidden = hidden.gather(1, after[:, :, None].expand(-1, -1, hidden.shape[-1]))
        self.last.copy_(self.next)
        self._choose(self.drafter.head(hidden[:, 0]), 0)

    def _later_pass(self, index: int) -> GraphStage:
        return stage(lambda: self._draft(index), self.device, self.restart)

    def _draft(self, index: int) -> None:
        """Draft `index` from the one before it."""
        tokens, lengths = self.drafts[:, index - 1 : index], self.lengths + index
        hidden = self.drafter.forward(tokens, lengths, self.draft_cache, self.span(index + 1))
        self._choose(self.drafter.head(hidden[:, 0]), index)

    def _choose(self, logits: Tensor, index: int) -> None:
        if not self.temperature:
            self.drafts[:, index] = greedy(logits)
            return
        uniforms = self.uniforms[:, self.draft_length + 1 + index]
        self.drafts[:, index], self.distributions[:, index] = sample(logits, uniforms, self.temperature)

    def _draft_from_prompt(self) -> None:
        """The drafts of the first cycle, for which the drafter reads only the first token."""
        self.draw()
        hidden = self.drafter.forward(self.last[:, None], self.lengths, self.draft_cache, self.span(1))
        self._choose(self.drafter.head(hidden[:, 0]), 0)
        for index in range(1, self.draft_length):
            self._draft(index)
