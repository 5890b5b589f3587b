"""Trials written by hand: one small model, whatever was published about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calibration.conversion.words import case_fields
from calibration.validation.reconstruction.cases import PublishedCase
from calibration.validation.reconstruction.published_run import PublishedFigure, PublishedRun
from calibration.validation.reconstruction.sections import (
    PublishedDraft,
    PublishedFramework,
    PublishedHardware,
    PublishedModel,
    PublishedWorkload,
    repeated,
)
from simulator.scenario import Scenario, scenario_from_data


def scenario(clients: int = 8, draft_length: int = 3, alpha: float = 0.7, **sections: Any) -> Scenario:
    """Llama-3.1-8B with EAGLE-3 on one H100; `sections` replace those of the file."""
    data: dict[str, Any] = {
        "target": {"model": "llama-3.1-8b-instruct"},
        "hardware": {"gpu": "h100-sxm"},
        "engine": {"preset": "vllm-0.10"},
        "speculation": [
            {
                "name": "spec",
                "method": "eagle3",
                "draft_length": draft_length,
                "acceptance": {"model": "geometric", "alpha": alpha},
            }
        ],
        "workload": {
            "arrivals": {"kind": "closed", "concurrency": clients},
            "requests": 200,
            "prompt_tokens": {"kind": "fixed", "tokens": 200},
            "output_tokens": {"kind": "fixed", "tokens": 200},
        },
        **sections,
    }
    return scenario_from_data(data, ".")


def case(points: Sequence[Mapping[str, Any]] = ({},), **fields: Any) -> PublishedCase:
    """A case of one source; `fields` replace what it says."""
    known_fields: dict[str, Any] = {
        "case_id": "by-hand",
        "kind": "spec_vs_plain",
        "source_id": "source",
        "file": "by-hand.json",
        "confidence": "verbatim",
        "hardware": PublishedHardware(gpu="H100 SXM", count=1, tp=1),
        "target": PublishedModel(model="Llama-3.1-8B-Instruct"),
        "draft": PublishedDraft(method="eagle3", k=3),
        "framework": PublishedFramework(name="vLLM", version="0.10.1"),
        "workload": PublishedWorkload(),
        "load_axis": "batch_size",
        "points": tuple(points),
        "speedup_of": None,
        "usable_as_gate": True,
        "quality_flags": (),
        "notes": (),
        "date": None,
        **fields,
    }
    return PublishedCase(**known_fields)


def with_words(about: PublishedCase, note: str) -> PublishedCase:
    """The case with a note, and the fields that the converter reads from it."""
    words = case_fields({"notes": [note]})
    return replace(
        about,
        notes=(note,),
        workload=repeated(about.workload, words["workload"]),
        engine_args=repeated(about.engine_args, words["engine_args"]),
    )


def run(
    published: Sequence[PublishedFigure],
    of: Scenario | None = None,
    *,
    about: PublishedCase | None = None,
    point: int = 0,
    batch: float | None = 8,
    **fields: Any,
) -> PublishedRun:
    """One point of a case; both variants are those of one scenario."""
    both = of if of is not None else scenario(int(batch or 1))
    known_fields: dict[str, Any] = {
        "gpu": "H100",
        "engine": "vLLM 0.10",
        "method": "eagle3",
        "load": "closed",
        "plain": both,
        "spec": both,
        "acceptance_from": "given",
        **fields,
    }
    return PublishedRun(
        case=about or case(), point=point, batch=batch, published=tuple(published), **known_fields
    )
