"""One published point: which scenarios it ran, from which acceptance, and why a variant cannot be
simulated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from calibration.validation.trials.acceptance_facts import served_model
from calibration.validation.trials.cases import Case, Facts
from calibration.validation.trials.drafts import (
    NO_DRAFT,
    TREE,
    DraftChoice,
    draft_length_of,
    draft_of,
    method_of,
    our_method,
)
from calibration.validation.trials.evidence import AcceptanceChoice, Evidence, Wanted, acceptance_of
from calibration.validation.trials.figures import figures_of
from calibration.validation.trials.lengths import LengthsChoice, lengths_of
from calibration.validation.trials.scenes import Scene, scene_of
from calibration.validation.trials.trial import OF_STEPS, SPEC, Published, Trial
from simulator.scenario import Scenario

KINDS = frozenset({"spec_vs_plain", "spec_absolute", "plain_baseline", "acceptance", "cost_breakdown"})

UNKNOWN_KIND = "kind of case not known"
RECALLED = "recalled, not read in the source"
HANDICAPPED = "plain run handicapped: acceptance only"
NO_GRAPHS = "verification without CUDA graphs: vLLM before 0.28 with FlashInfer"
SIZE_NOT_STATED = "GPUs not stated: ratios only"

_SLOW_PLAIN = frozenset({"speedup_exceeds_acceptance_length", "handicapped_baseline", "implausible_baseline"})
_RELATIVE = ("speedup", "acceptance_length")
_ANY_ACCEPTANCE = AcceptanceChoice({"model": "geometric", "alpha": 0.5}, "none", "")
"""For single steps, whose prices do not depend on it."""


@dataclass(frozen=True)
class PointOfView:
    """One point, as far as it is about one data set. `point` is what it says of it."""

    case: Case
    index: int
    point: Facts
    dataset: str | None
    evidence: Evidence

    def trials(self) -> Iterator[Trial]:
        """A trial of whole runs, and one of single steps for each quantity of them that the point has."""
        placements = [scene.placement for scene in self.scenes]
        gpus = placements[0].gpus if placements else None
        ranks = placements[0].ranks if placements else 1.0
        found = figures_of(self.case, self.point, self.lengths, gpus, ranks)
        for quantity in OF_STEPS:
            asked = [one for one in found if one.quantity == quantity]
            if asked:
                yield self._of_steps(asked)
        runs = [one for one in found if one.quantity not in OF_STEPS]
        if any(placement.tensor_parallel is None for placement in placements):
            absolute = [one for one in runs if one.quantity not in _RELATIVE]
            runs = [one for one in runs if one.quantity in _RELATIVE]
            if absolute:
                yield self._trial(absolute, skipped=dict.fromkeys(("plain", SPEC), SIZE_NOT_STATED))
        if runs or not found:
            yield self._of_run(runs)

    @cached_property
    def lengths(self) -> LengthsChoice:
        """What was sent, the same on both sides."""
        siblings = self.evidence.by_source.get(self.case.source_id, ())
        return lengths_of(self.case, self.point, self.dataset, siblings)

    @cached_property
    def plain(self) -> Scene | str:
        """The side without speculation."""
        return self.refused or scene_of(self.case, self.point, self.lengths, "plain")

    @cached_property
    def spec(self) -> Scene | str:
        """The side with it."""
        return self.refused or scene_of(self.case, self.point, self.lengths, "spec")

    @property
    def scenes(self) -> tuple[Scene, ...]:
        """The sides that can be simulated."""
        return tuple(side for side in (self.plain, self.spec) if isinstance(side, Scene))

    @property
    def refused(self) -> str | None:
        """Why nothing of this case is simulated, whatever it ran on."""
        if self.case.kind not in KINDS:
            return UNKNOWN_KIND
        if self.case.confidence == "recalled":
            return RECALLED
        return HANDICAPPED if _SLOW_PLAIN.intersection(self.case.quality_flags) else None

    @cached_property
    def draft(self) -> DraftChoice | str:
        """How the point drafted, or why that cannot be simulated."""
        if isinstance(self.spec, str):
            return self.spec
        if not self.spec.engine.verifies_in_graphs:
            return NO_GRAPHS
        return draft_of(self.case, self.point, self.spec.model, self.spec.engine.research)

    def _of_run(self, published: Sequence[Published]) -> Trial:
        """Both variants as they ran."""
        chosen = self._acceptance() if isinstance(self.draft, DraftChoice) else self.draft
        published = (*published, *self._own_length(chosen))
        variants = {one.variant for one in published}
        if not variants:
            return self._trial((), skipped={"plain": self.refused} if self.refused else {})
        skipped: dict[str, str] = {}
        spec: Scenario | None = None
        notes: tuple[str, ...] = ()
        if variants != {"plain"}:
            spec, notes = self._spec_scenario(self.draft, chosen, skipped)
        plain, more = (None, ()) if variants == {SPEC} else self._plain_scenario(spec, skipped)
        acceptance = chosen if isinstance(chosen, AcceptanceChoice) and spec is not None else None
        return self._trial(published, plain, spec, skipped, (*notes, *more), self.draft, acceptance)

    def _of_steps(self, published: Sequence[Published]) -> Trial:
        """Single steps: their prices need neither traffic nor acceptance."""
        draft: DraftChoice | str = self.draft
        if published[0].quantity == "step_ratio" and draft != TREE and isinstance(self.spec, Scene):
            # What verifying K + 1 tokens costs does not depend on who drafted them.
            length = draft_length_of(self.case, self.point, "").tokens
            draft = DraftChoice("ngram", None, length, "", None, False, ())
        skipped: dict[str, str] = {}
        spec: Scenario | None = None
        notes: tuple[str, ...] = ()
        if any(one.variant != "plain" for one in published):
            spec, notes = self._spec_scenario(draft, _ANY_ACCEPTANCE, skipped)
        plain, more = self._plain_scenario(spec, skipped)
        return self._trial(published, plain, spec, skipped, (*notes, *more), draft)

    def _acceptance(self) -> AcceptanceChoice | str:
        """The acceptance of the drafts; of another point where the point's own is what is compared."""
        assert isinstance(self.spec, Scene)
        assert isinstance(self.draft, DraftChoice)
        model = served_model(self.case, self.spec.model.title)
        wanted = Wanted(self.case, self.index, self.dataset, model, self.draft)
        if self.case.kind == "acceptance":
            found = acceptance_of(self.evidence, wanted, leave_own=True)
            if isinstance(found, AcceptanceChoice) and found.origin == "joined":
                return found
        return acceptance_of(self.evidence, wanted, leave_own=False)

    def _own_length(self, chosen: AcceptanceChoice | str) -> tuple[Published, ...]:
        """The stated length of an acceptance case, unless it is the input."""
        if self.case.kind != "acceptance" or (
            isinstance(chosen, AcceptanceChoice) and chosen.origin == "given"
        ):
            return ()
        for fact in self.evidence.facts_about(self.case):
            if fact.point == self.index and (self.dataset is None or self.dataset in fact.dataset):
                return (Published("acceptance_length", "spec", fact.length),)
        return ()

    def _spec_scenario(
        self, draft: DraftChoice | str, chosen: AcceptanceChoice | str, skipped: dict[str, str]
    ) -> tuple[Scenario | None, tuple[str, ...]]:
        """The scenario with the point's drafts and what was assumed; else the reason is left in `skipped`."""
        refused = next((one for one in (self.spec, draft, chosen) if isinstance(one, str)), None)
        if refused is None and isinstance(self.spec, Scene) and isinstance(draft, DraftChoice):
            entry = chosen.entry if isinstance(chosen, AcceptanceChoice) else {}
            found = self.spec.scenario(self._variant(self.spec, draft, entry))
            if not isinstance(found, str):
                return found
            refused = found
        skipped[SPEC] = refused or NO_DRAFT
        return None, ()

    def _plain_scenario(
        self, spec: Scenario | None, skipped: dict[str, str]
    ) -> tuple[Scenario | None, tuple[str, ...]]:
        """The scenario of the plain run: the speculative one where both ran on the same, as they then share
        its prices, else its own on as many GPUs; or the reason is left in `skipped`.
        """
        if isinstance(self.plain, str):
            skipped["plain"] = self.plain
            return None, ()
        scene = self.plain
        if spec is not None and isinstance(self.spec, Scene):
            if scene.runs_as(self.spec):
                return spec, ()
            ranks = spec.hardware.tensor_parallel
            scene = replace(scene, placement=scene.placement._replace(tensor_parallel=ranks))
        found = scene.scenario(None)
        if isinstance(found, str):
            skipped["plain"] = found
            return None, ()
        return found

    def _variant(self, scene: Scene, draft: DraftChoice, acceptance: Mapping[str, Any]) -> dict[str, Any]:
        """The one speculative variant."""
        variant: dict[str, Any] = {
            "name": SPEC,
            "method": draft.method,
            "draft_length": draft.length,
            "acceptance": dict(acceptance),
        }
        if draft.draft is not None:
            variant["draft"] = draft.draft
            # Engines draft on beyond what a head was trained for; the stated acceptance has that in it.
            variant["max_context_tokens"] = scene.model.model.max_context_tokens
        if re.search(r"draft tp ?=? ?1\b", self.case.text):
            variant["draft_tensor_parallel"] = 1
        return variant

    def _trial(
        self,
        published: Sequence[Published],
        plain: Scenario | None = None,
        spec: Scenario | None = None,
        skipped: Mapping[str, str] | None = None,
        notes: tuple[str, ...] = (),
        draft: DraftChoice | str = NO_DRAFT,
        acceptance: AcceptanceChoice | None = None,
    ) -> Trial:
        scenes, method = self.scenes, method_of(self.case, self.point)
        gpu = " | ".join(dict.fromkeys(scene.gpu.name for scene in scenes))
        engine = " | ".join(dict.fromkeys(scene.engine_name for scene in scenes))
        drafting = draft.notes if isinstance(draft, DraftChoice) else ()
        return Trial(
            case=self.case,
            point=self.index,
            gpu=gpu or str(self.case.hardware.gpu),
            engine=engine or str(self.case.framework.name),
            method=None if method is None else our_method(method) or method,
            batch=scenes[0].load.batch if scenes else None,
            load=scenes[0].load.title if scenes else self.case.load_axis,
            plain=plain,
            spec=spec,
            published=tuple(published),
            acceptance_from="none" if acceptance is None else acceptance.origin,
            acceptance_note="" if acceptance is None else acceptance.note,
            skipped=dict(skipped or {}),
            choices=tuple(dict.fromkeys((*(n for scene in scenes for n in scene.notes), *drafting, *notes))),
            dataset=self.dataset,
            draft_length=draft.length if isinstance(draft, DraftChoice) else None,
            sent=scenes[0].load.sent if scenes else None,
            mean_tokens=self.lengths.stated_means,
            assumed_lengths=self.lengths.assumed,
            research=any(scene.engine.research for scene in scenes),
        )
