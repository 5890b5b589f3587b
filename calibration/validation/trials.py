"""Published points made into trials: what was run, as scenarios, and what was measured, to compare."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from calibration.validation.acceptance_facts import DATASET_KEYS
from calibration.validation.cases import Case, Facts, committed_cases
from calibration.validation.drafts import (
    NO_DRAFT,
    TREE,
    DraftChoice,
    draft_length_of,
    draft_of,
    method_of,
    our_method,
)
from calibration.validation.evidence import AcceptanceChoice, Evidence, Wanted, acceptance_of
from calibration.validation.figures import figures_of
from calibration.validation.lengths import LengthsChoice, lengths_of
from calibration.validation.names import datasets_of
from calibration.validation.scenes import Scene, scene_of
from calibration.validation.trial import SPEC, Published, Trial
from simulator.scenario import Scenario

__all__ = ["Published", "Trial", "trials_of", "trials_of_cases"]

KINDS = frozenset({"spec_vs_plain", "spec_absolute", "plain_baseline", "acceptance", "cost_breakdown"})

UNKNOWN_KIND = "kind of case not known"
RECALLED = "recalled, not read in the source"
HANDICAPPED = "plain run handicapped: acceptance only"

_SLOW_PLAIN = frozenset({"speedup_exceeds_acceptance_length", "handicapped_baseline", "implausible_baseline"})
_OF_STEPS = ("cost_share", "step_ratio")


def trials_of_cases(cases: Sequence[Case]) -> tuple[Trial, ...]:
    """The trials of all cases; acceptance comes from them and from the committed evidence."""
    evidence = Evidence.of((*cases, *committed_cases()))
    return tuple(trial for case in cases for trial in trials_of(case, evidence))


def trials_of(case: Case, evidence: Evidence) -> tuple[Trial, ...]:
    """The trials of a case: one per point, more where a point tells of several data sets or of single steps.

    Nothing that a source says raises: what cannot be simulated has its reason in `Trial.skipped`.
    """
    return tuple(
        trial
        for index, point in enumerate(case.points)
        for dataset, facts in _views(point)
        for trial in _PointOfView(case, index, facts, dataset, evidence).trials()
    )


def _views(point: Facts) -> Iterator[tuple[str | None, Facts]]:
    """A point, or in place of it each of the data sets that it holds."""
    inner = [key for key in DATASET_KEYS if isinstance(point.get(key), Mapping)]
    shared = {key: value for key, value in point.items() if key not in inner}
    for key in inner:
        yield key, {**shared, **point[key]}
    if not inner:
        said = (point.get(key) for key in ("dataset", "task", "domain"))
        yield next((name for name in said if isinstance(name, str) and datasets_of(name)), None), point


@dataclass(frozen=True)
class _PointOfView:
    """One point, as far as it is about one data set."""

    case: Case
    index: int
    point: Facts
    dataset: str | None
    evidence: Evidence

    def trials(self) -> Iterator[Trial]:
        """A trial of whole runs, and one of single steps where the point speaks of them."""
        scene = self.plain if isinstance(self.plain, Scene) else self.spec
        placement = scene.placement if isinstance(scene, Scene) else None
        gpus, ranks = (placement.gpus, placement.ranks) if placement is not None else (None, 1.0)
        found = figures_of(self.case, self.point, self.lengths, gpus, ranks)
        runs = [one for one in found if one.quantity not in _OF_STEPS]
        for quantity in _OF_STEPS:
            asked = [one for one in found if one.quantity == quantity]
            if asked:
                yield self._of_steps(asked)
        if runs or not found:
            yield self._of_run(runs)

    @cached_property
    def siblings(self) -> Sequence[Case]:
        """The cases of the same source."""
        return self.evidence.by_source.get(self.case.source_id, ())

    @cached_property
    def lengths(self) -> LengthsChoice:
        """What was sent, the same on both sides."""
        return lengths_of(self.case, self.point, self.dataset, self.siblings)

    @cached_property
    def plain(self) -> Scene | str:
        """The side without speculation."""
        return scene_of(self.case, self.point, self.lengths, "plain")

    @cached_property
    def spec(self) -> Scene | str:
        """The side with it."""
        return scene_of(self.case, self.point, self.lengths, "spec")

    @cached_property
    def refused(self) -> str | None:
        """Why nothing of this case is simulated, whatever it ran on."""
        if self.case.kind not in KINDS:
            return UNKNOWN_KIND
        if self.case.confidence == "recalled":
            return RECALLED
        return HANDICAPPED if _SLOW_PLAIN.intersection(self.case.quality_flags) else None

    def _of_run(self, published: Sequence[Published]) -> Trial:
        """Both arms as they ran."""
        draft = self._draft()
        chosen = self._acceptance(draft) if isinstance(draft, DraftChoice) else None
        own = self._compared_length(chosen)
        published = (*published, *own)
        reasons: dict[str, str] = {}
        spec = made = None
        if any(one.arm != "plain" for one in published) or not published:
            spec, made, reasons["spec"] = self._spec_scenario(draft, chosen)
        plain, plain_notes, reasons["plain"] = self._plain_scenario(spec)
        if not any(one.arm != "spec" for one in published):
            plain = None
        return self._trial(
            published,
            plain,
            spec,
            {arm: why for arm, why in reasons.items() if why},
            (*plain_notes, *(made or ())),
            draft,
            chosen if isinstance(chosen, AcceptanceChoice) else None,
        )

    def _draft(self) -> DraftChoice | str | None:
        """How the point drafted; None when it did not."""
        if method_of(self.case, self.point) is None:
            return None
        if isinstance(self.spec, str):
            return self.spec
        return draft_of(self.case, self.point, self.spec.model, self.spec.engine.research)

    def _acceptance(self, draft: DraftChoice) -> AcceptanceChoice | str:
        assert isinstance(self.spec, Scene)
        wanted = Wanted(self.case, self.index, self.dataset, self.spec.model.title, draft)
        if self.case.kind == "acceptance":
            from_others = acceptance_of(self.evidence, wanted, leave_own=True)
            if isinstance(from_others, AcceptanceChoice) and from_others.origin == "joined":
                return from_others
        return acceptance_of(self.evidence, wanted, leave_own=False)

    def _compared_length(self, chosen: AcceptanceChoice | str | None) -> tuple[Published, ...]:
        """The stated acceptance length of an acceptance case, unless it is the input."""
        if self.case.kind != "acceptance" or (
            isinstance(chosen, AcceptanceChoice) and chosen.origin == "given"
        ):
            return ()
        facts = (one for one in self.evidence.facts_about(self.case) if one.point == self.index)
        own = next((one for one in facts if self.dataset is None or self.dataset in one.dataset), None)
        return () if own is None else (Published("acceptance_length", "spec", own.length),)

    def _spec_scenario(
        self, draft: DraftChoice | str | None, chosen: AcceptanceChoice | str | None
    ) -> tuple[Scenario | None, tuple[str, ...], str]:
        """The scenario with the point's drafts, what was assumed, and why there is none."""
        refused = self.refused or next(
            (one for one in (self.spec, draft, chosen) if isinstance(one, str)), None
        )
        if refused is not None:
            return None, (), refused
        if not isinstance(draft, DraftChoice) or not isinstance(chosen, AcceptanceChoice):
            return None, (), NO_DRAFT
        assert isinstance(self.spec, Scene)
        found = self.spec.scenario(self._arm(draft, chosen.entry))
        return (None, (), found) if isinstance(found, str) else (*found, "")

    def _plain_scenario(self, spec: Scenario | None) -> tuple[Scenario | None, tuple[str, ...], str]:
        """The scenario of the plain run: the speculative one where both ran on the same, as they then share
        its prices; else its own, on as many GPUs.
        """
        refused = self.refused or (self.plain if isinstance(self.plain, str) else None)
        if refused is not None:
            return None, (), refused
        assert isinstance(self.plain, Scene)
        scene = self.plain
        if spec is not None and isinstance(self.spec, Scene):
            if scene.runs_as(self.spec):
                return spec, (), ""
            placement = scene.placement._replace(tensor_parallel=spec.hardware.tensor_parallel)
            scene = replace(scene, placement=placement)
        found = scene.scenario(None)
        return (None, (), found) if isinstance(found, str) else (*found, "")

    def _arm(self, draft: DraftChoice, acceptance: Mapping[str, Any]) -> dict[str, Any]:
        """The one speculative arm."""
        assert isinstance(self.spec, Scene)
        arm: dict[str, Any] = {
            "name": SPEC,
            "method": draft.method,
            "draft_length": draft.length,
            "acceptance": dict(acceptance),
        }
        if draft.draft is not None:
            arm["draft"] = draft.draft
            # Engines draft on beyond the lengths a head was trained for; the acceptance stated tells the result.
            arm["max_context_tokens"] = self.spec.model.model.max_context_tokens
        if re.search(r"draft tp ?=? ?1\b", self.case.text):
            arm["draft_tensor_parallel"] = 1
        return arm

    def _of_steps(self, published: Sequence[Published]) -> Trial:
        """Single steps: their prices need neither traffic nor acceptance."""
        ratio = published[0].quantity == "step_ratio"
        draft = self._draft()
        entry = {"model": "geometric", "alpha": 0.5}
        if ratio and isinstance(self.spec, Scene):
            # What verifying K + 1 tokens costs does not depend on who drafted them.
            length, _ = draft_length_of(self.case, self.point, "")
            tree = isinstance(draft, str) and draft == TREE
            draft = (
                TREE
                if tree
                else DraftChoice("ngram", None, length, str(method_of(self.case, self.point)), False, ())
            )
        spec: Scenario | None = None
        notes: tuple[str, ...] = ()
        reasons: dict[str, str] = {}
        if isinstance(draft, DraftChoice):
            dummy = AcceptanceChoice(entry, "none", "", 1.0)
            spec, notes, reasons["spec"] = self._spec_scenario(draft, dummy)
        elif isinstance(draft, str):
            reasons["spec"] = self.refused or draft
        plain, plain_notes, reasons["plain"] = self._plain_scenario(spec)
        skipped = {arm: why for arm, why in reasons.items() if why}
        return self._trial(tuple(published), plain, spec, skipped, (*plain_notes, *notes), draft, None)

    def _trial(
        self,
        published: Sequence[Published],
        plain: Scenario | None,
        spec: Scenario | None,
        skipped: Mapping[str, str],
        notes: tuple[str, ...],
        draft: DraftChoice | str | None,
        acceptance: AcceptanceChoice | None,
    ) -> Trial:
        scenes = [one for one in (self.plain, self.spec) if isinstance(one, Scene)]
        method = method_of(self.case, self.point)
        drafting = draft.notes if isinstance(draft, DraftChoice) else ()
        assumed = [note for scene in scenes for note in scene.notes]
        ours = our_method(method) if method is not None else None
        return Trial(
            case=self.case,
            point=self.index,
            gpu=" | ".join(dict.fromkeys(scene.gpu.name for scene in scenes)) or str(self.case.hardware.gpu),
            engine=" | ".join(dict.fromkeys(scene.engine.preset for scene in scenes))
            or str(self.case.framework.name),
            method=ours or method,
            batch=scenes[0].load.batch if scenes else None,
            load=scenes[0].load.title if scenes else self.case.load_axis,
            plain=plain,
            spec=spec,
            published=tuple(published),
            acceptance_from=acceptance.origin if acceptance is not None else "none",
            acceptance_note=acceptance.note if acceptance is not None else "",
            skipped=skipped,
            choices=tuple(dict.fromkeys((*assumed, *drafting, *notes))),
            dataset=self.dataset,
            draft_length=draft.length if isinstance(draft, DraftChoice) else None,
            research=any(scene.engine.research for scene in scenes),
        )
