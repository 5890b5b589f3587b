"""Draft rounds request by request, as responses and per-request records report them."""

from __future__ import annotations

from calibration.telemetry.fields import LONGEST_DRAFT, DamagedError, RecordFields
from calibration.telemetry.reading import Counts, Finding, MeasuredAcceptance, RoundBlock, Stated
from calibration.telemetry.samples import BlockSeries


class RequestRounds:
    """Sums the rounds of requests and keeps them apart for resampling."""

    def __init__(self) -> None:
        self.total = Counts(0.0, 0.0)
        self._series = BlockSeries()
        self._draft_length = 0

    def add(self, counts: Counts, draft_length: int | None) -> None:
        """One request; one without a round adds nothing."""
        if counts.rounds:
            self.total = self.total + counts
            self._series.add(RoundBlock(counts))
            self._draft_length = max(self._draft_length, draft_length or 0)

    def acceptance(self, basis: str) -> MeasuredAcceptance | None:
        """The acceptance of all of them; None without a round."""
        if not self.total.rounds:
            return None
        blocks = self._series.blocks()
        return MeasuredAcceptance(
            self.total, self._draft_length or None, basis, blocks=blocks, in_order=False
        )


def rounds_of_vllm(fields: RecordFields) -> tuple[Counts, int | None]:
    """Counts and draft length of vLLM's `speculative_decoding` object, which AIPerf passes on with few
    changes.

    The histogram counts rounds by how many drafts they accepted: a list, or a sparse object. Raises
    DamagedError where the counts contradict one another.
    """
    rounds, accepted = fields.count("num_spec_steps"), fields.count("num_accepted_draft_tokens")
    drafted, draft_length = fields.count("num_draft_tokens"), fields.count("num_spec_tokens")
    if rounds is None or accepted is None:
        raise DamagedError("num_spec_steps or num_accepted_draft_tokens is missing")
    if drafted is not None and accepted > drafted:
        raise DamagedError("more draft tokens are accepted than drafted")
    at = positions_of(histogram_of(fields, "acceptance_histogram"), rounds, accepted, draft_length)
    if draft_length is None and at:
        draft_length = float(len(at))
    known = draft_length is not None and 1.0 <= draft_length <= LONGEST_DRAFT
    return Counts(rounds, accepted, drafted, at), int(draft_length or 0) if known else None


def histogram_of(fields: RecordFields, key: str) -> list[float]:
    """Rounds by number of accepted drafts, from 0 on; empty where the source does not have it."""
    listed = fields.numbers(key) if fields.is_list(key) else None
    if listed is not None:
        return listed
    part = fields.part(key)
    sparse = {int(name): part.count(name) or 0.0 for name in part if name.isdecimal() and len(name) < 4}
    return [sparse.get(accepted, 0.0) for accepted in range(max(sparse, default=-1) + 1)]


def positions_of(
    histogram: list[float], rounds: float, accepted: float, draft_length: float | None
) -> tuple[float, ...]:
    """Rounds that accepted each position, up to the draft length where it is known: the histogram may end
    with the most that a round accepted. Raises DamagedError where it contradicts the counts.
    """
    if not histogram:
        return ()
    if sum(histogram) != rounds or sum(place * count for place, count in enumerate(histogram)) != accepted:
        raise DamagedError("the histogram of accepted drafts contradicts the counts")
    longest = max(len(histogram) - 1, min(int(draft_length or 0), LONGEST_DRAFT))
    return tuple(float(sum(histogram[place:])) for place in range(1, longest + 1))


def tokens_per_chunk(
    mean: float, name: str, sample: MeasuredAcceptance | None
) -> tuple[MeasuredAcceptance, tuple[Stated, ...], tuple[Finding, ...]]:
    """Acceptance by tokens per streamed chunk, where a client counts nothing else, or only a `sample`."""
    definition = "tokens per streamed chunk after the first"
    text = (
        f"no counts of acceptance for the whole run: {mean:.2f} tokens per streamed chunk stand for the mean "
        f"acceptance length, which is right when every step drafts and no chunk is merged"
    )
    stated = [Stated(name, mean, definition)]
    if sample is not None:
        stated.append(
            Stated("speculative_decoding", sample.total.mean_length, "counts of a few of the requests")
        )
    draft_length = None if sample is None else sample.draft_length
    acceptance = MeasuredAcceptance(Counts(1.0, mean - 1.0), draft_length, definition, counted=False)
    return acceptance, tuple(stated), (Finding("tokens-per-chunk", "info", text),)
