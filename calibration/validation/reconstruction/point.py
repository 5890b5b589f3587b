"""Reconstructs one published point: its scenarios, their acceptance, or why it cannot be simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from calibration.validation.reconstruction.acceptance_facts import served_model
from calibration.validation.reconstruction.cases import PublishedCase
from calibration.validation.reconstruction.drafts import (
    NO_DRAFT,
    TREE,
    DraftChoice,
    draft_length_of,
    draft_of,
    method_of,
    simulated_method,
)
from calibration.validation.reconstruction.evidence import (
    AcceptanceChoice,
    AcceptanceEvidence,
    AcceptanceQuery,
    acceptance_of,
)
from calibration.validation.reconstruction.figures import figures_of
from calibration.validation.reconstruction.lengths import LengthsChoice, lengths_of
from calibration.validation.reconstruction.published_run import OF_STEPS, SPEC, PublishedFigure, PublishedRun
from calibration.validation.reconstruction.sections import Facts
from calibration.validation.reconstruction.settings import RunSetting, setting_of
from simulator.scenario import Scenario

KINDS = frozenset({"spec_vs_plain", "spec_absolute", "plain_baseline", "acceptance", "cost_breakdown"})

UNKNOWN_KIND = "kind of case not known"
RECALLED = "recalled, not read in the source"
HANDICAPPED = "plain run handicapped: acceptance only"
NO_GRAPHS = "vLLM before 0.28 verifies with FlashInfer without graphs"
SIZE_NOT_STATED = "GPUs not stated: ratios only"

_SLOW_PLAIN = frozenset({"speedup_exceeds_acceptance_length", "handicapped_baseline", "implausible_baseline"})
_RELATIVE = ("speedup", "acceptance_length")
_ANY_ACCEPTANCE = AcceptanceChoice({"model": "geometric", "alpha": 0.5}, "none", "")
"""For single steps, whose prices do not depend on acceptance."""


@dataclass(frozen=True)
class PublishedPoint:
    """The part of one point that is about one data set; `point` holds its facts."""

    case: PublishedCase
    index: int
    point: Facts
    dataset: str | None
    evidence: AcceptanceEvidence

    def runs(self) -> Iterator[PublishedRun]:
        """One published run with the figures of complete runs, and one for each quantity of single steps."""
        placements = [setting.placement for setting in self.settings]
        gpus = placements[0].gpus if placements else None
        ranks = placements[0].ranks if placements else 1.0
        figures = figures_of(self.case, self.point, self.lengths, gpus, ranks)
        for quantity in OF_STEPS:
            step_figures = [figure for figure in figures if figure.quantity == quantity]
            if step_figures:
                yield self._of_steps(step_figures)
        run_figures = [figure for figure in figures if figure.quantity not in OF_STEPS]
        if any(placement.tensor_parallel is None for placement in placements):
            absolute = [figure for figure in run_figures if figure.quantity not in _RELATIVE]
            run_figures = [figure for figure in run_figures if figure.quantity in _RELATIVE]
            if absolute:
                yield self._published_run(absolute, skipped=dict.fromkeys(("plain", SPEC), SIZE_NOT_STATED))
        if run_figures or not figures:
            yield self._of_run(run_figures)

    @cached_property
    def lengths(self) -> LengthsChoice:
        """Lengths of the requests, the same on both sides."""
        siblings = self.evidence.by_source.get(self.case.source_id, ())
        return lengths_of(self.case, self.point, self.dataset, siblings)

    @cached_property
    def plain(self) -> RunSetting | str:
        """The side without speculation, or why it is refused."""
        return self.refused or setting_of(self.case, self.point, self.lengths, "plain")

    @cached_property
    def spec(self) -> RunSetting | str:
        """The side with speculation, or why it is refused."""
        return self.refused or setting_of(self.case, self.point, self.lengths, "spec")

    @property
    def settings(self) -> tuple[RunSetting, ...]:
        """The sides that can be simulated."""
        return tuple(side for side in (self.plain, self.spec) if isinstance(side, RunSetting))

    @property
    def refused(self) -> str | None:
        """Why nothing of this case is simulated; None if its kind and quality allow it."""
        if self.case.kind not in KINDS:
            return UNKNOWN_KIND
        if self.case.confidence == "recalled":
            return RECALLED
        return HANDICAPPED if _SLOW_PLAIN.intersection(self.case.quality_flags) else None

    @cached_property
    def draft(self) -> DraftChoice | str:
        """The drafting of the point, or why it cannot be simulated."""
        if isinstance(self.spec, str):
            return self.spec
        if not self.spec.engine.verifies_in_graphs:
            return NO_GRAPHS
        return draft_of(self.case, self.point, self.spec.model, self.spec.engine.research)

    def _of_run(self, published: Sequence[PublishedFigure]) -> PublishedRun:
        """A published run whose variants are simulated from the first request to the last."""
        acceptance_choice = self._acceptance() if isinstance(self.draft, DraftChoice) else self.draft
        published = (*published, *self._stated_length(acceptance_choice))
        variants = {figure.variant for figure in published}
        if not variants:
            return self._published_run((), skipped={"plain": self.refused} if self.refused else {})
        skipped: dict[str, str] = {}
        spec: Scenario | None = None
        notes: tuple[str, ...] = ()
        if variants != {"plain"}:
            spec, notes = self._spec_scenario(self.draft, acceptance_choice, skipped)
        plain, more = (None, ()) if variants == {SPEC} else self._plain_scenario(spec, skipped)
        acceptance = (
            acceptance_choice
            if isinstance(acceptance_choice, AcceptanceChoice) and spec is not None
            else None
        )
        return self._published_run(published, plain, spec, skipped, (*notes, *more), self.draft, acceptance)

    def _of_steps(self, published: Sequence[PublishedFigure]) -> PublishedRun:
        """A published run of single steps, whose prices need neither traffic nor acceptance."""
        draft: DraftChoice | str = self.draft
        if published[0].quantity == "step_ratio" and draft != TREE and isinstance(self.spec, RunSetting):
            # The cost of verifying K + 1 tokens does not depend on the drafter.
            length = draft_length_of(self.case, self.point, "").tokens
            draft = DraftChoice("ngram", None, length, "", None, False, ())
        skipped: dict[str, str] = {}
        spec: Scenario | None = None
        notes: tuple[str, ...] = ()
        if any(figure.variant != "plain" for figure in published):
            spec, notes = self._spec_scenario(draft, _ANY_ACCEPTANCE, skipped)
        plain, more = self._plain_scenario(spec, skipped)
        return self._published_run(published, plain, spec, skipped, (*notes, *more), draft)

    def _acceptance(self) -> AcceptanceChoice | str:
        """The acceptance of the drafts; another point's, if the point's own is what is compared."""
        assert isinstance(self.spec, RunSetting)
        assert isinstance(self.draft, DraftChoice)
        model = served_model(self.case, self.spec.model.title)
        query = AcceptanceQuery(self.case, self.index, self.dataset, model, self.draft)
        if self.case.kind == "acceptance":
            other = acceptance_of(self.evidence, query, ignore_own=True)
            if isinstance(other, AcceptanceChoice) and other.origin == "joined":
                return other
        return acceptance_of(self.evidence, query, ignore_own=False)

    def _stated_length(self, acceptance_choice: AcceptanceChoice | str) -> tuple[PublishedFigure, ...]:
        """The stated acceptance length of an acceptance case, unless it is the input."""
        if self.case.kind != "acceptance" or (
            isinstance(acceptance_choice, AcceptanceChoice) and acceptance_choice.origin == "given"
        ):
            return ()
        for fact in self.evidence.facts_about(self.case):
            if fact.point == self.index and (self.dataset is None or self.dataset in fact.dataset):
                return (PublishedFigure("acceptance_length", "spec", fact.length),)
        return ()

    def _spec_scenario(
        self, draft: DraftChoice | str, acceptance_choice: AcceptanceChoice | str, skipped: dict[str, str]
    ) -> tuple[Scenario | None, tuple[str, ...]]:
        """The scenario with the point's drafts, and notes; None leaves the reason in `skipped`."""
        refused = next(
            (reason for reason in (self.spec, draft, acceptance_choice) if isinstance(reason, str)), None
        )
        if refused is None and isinstance(self.spec, RunSetting) and isinstance(draft, DraftChoice):
            entry = acceptance_choice.entry if isinstance(acceptance_choice, AcceptanceChoice) else {}
            scenario = self.spec.scenario(self._variant(self.spec, draft, entry))
            if not isinstance(scenario, str):
                return scenario
            refused = scenario
        skipped[SPEC] = refused or NO_DRAFT
        return None, ()

    def _plain_scenario(
        self, spec: Scenario | None, skipped: dict[str, str]
    ) -> tuple[Scenario | None, tuple[str, ...]]:
        """The scenario of the plain run, and notes; None leaves the reason in `skipped`.

        If both sides ran on the same setting, the speculative scenario serves both, so that they share its
        prices. Otherwise the plain side gets its own scenario on as many GPUs.
        """
        if isinstance(self.plain, str):
            skipped["plain"] = self.plain
            return None, ()
        setting = self.plain
        if spec is not None and isinstance(self.spec, RunSetting):
            if setting.runs_as(self.spec):
                return spec, ()
            ranks = spec.hardware.tensor_parallel
            setting = replace(setting, placement=setting.placement._replace(tensor_parallel=ranks))
        scenario = setting.scenario(None)
        if isinstance(scenario, str):
            skipped["plain"] = scenario
            return None, ()
        return scenario

    def _variant(
        self, setting: RunSetting, draft: DraftChoice, acceptance: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The speculative variant as a scenario section."""
        variant: dict[str, Any] = {
            "name": SPEC,
            "method": draft.method,
            "draft_length": draft.length,
            "acceptance": dict(acceptance),
        }
        if draft.draft is not None:
            variant["draft"] = draft.draft
            # Engines draft beyond a head's trained context; the stated acceptance includes that.
            variant["max_context_tokens"] = setting.model.model.max_context_tokens
        if self.case.draft is not None and self.case.draft.tensor_parallel == 1:
            variant["draft_tensor_parallel"] = 1
        return variant

    def _published_run(
        self,
        published: Sequence[PublishedFigure],
        plain: Scenario | None = None,
        spec: Scenario | None = None,
        skipped: Mapping[str, str] | None = None,
        notes: tuple[str, ...] = (),
        draft: DraftChoice | str = NO_DRAFT,
        acceptance: AcceptanceChoice | None = None,
    ) -> PublishedRun:
        settings, method = self.settings, method_of(self.case, self.point)
        gpu = " | ".join(dict.fromkeys(setting.gpu.name for setting in settings))
        engine = " | ".join(dict.fromkeys(setting.engine_name for setting in settings))
        drafting = draft.notes if isinstance(draft, DraftChoice) else ()
        return PublishedRun(
            case=self.case,
            point=self.index,
            gpu=gpu or str(self.case.hardware.gpu),
            engine=engine or str(self.case.framework.name),
            method=None if method is None else simulated_method(method) or method,
            batch=settings[0].load.batch if settings else None,
            load=settings[0].load.title if settings else self.case.load_axis,
            plain=plain,
            spec=spec,
            published=tuple(published),
            acceptance_from="none" if acceptance is None else acceptance.origin,
            acceptance_note="" if acceptance is None else acceptance.note,
            skipped=dict(skipped or {}),
            choices=tuple(
                dict.fromkeys((*(n for setting in settings for n in setting.notes), *drafting, *notes))
            ),
            dataset=self.dataset,
            draft_length=draft.length if isinstance(draft, DraftChoice) else None,
            sent=settings[0].load.sent if settings else None,
            mean_tokens=self.lengths.stated_means,
            assumed_lengths=self.lengths.assumed,
            research=any(setting.engine.research for setting in settings),
        )
