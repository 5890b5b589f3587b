"""The rollout as a Markdown document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.rollout.queries import QUERIES
from experiments.rollout.stages import PROMPTS, RolloutFacts, RolloutGate, RolloutStage


def rollout_markdown(
    facts: RolloutFacts, stages: Sequence[RolloutStage], alerts: Sequence[Mapping[str, Any]]
) -> str:
    """Verdict, engine configuration, stages with commands and gates, alerts, rollback."""
    decision, scenario = facts.plan.decision, facts.scenario
    parts = [
        f"# Rollout: {scenario.name or scenario.target.model}",
        f"**{decision.verdict}**: {decision.reason}.",
    ]
    if not stages:
        parts.append(
            "Speculation stays off, so there are no stages. Plan again after a change of the drafter, the "
            "load, the SLO or the engine."
        )
    parts += _engine(facts)
    parts += _stages(stages)
    if alerts:
        parts += ["## Alerts", _yaml(alerts), _rollback()]
    note = QUERIES[facts.engine].note
    if stages and note:
        parts.append(f"> {note}")
    if any(PROMPTS in command for stage in stages for command in stage.commands):
        parts.append(
            f"`{PROMPTS}`: a sample of your own prompts, one JSON object per line with the key `prompt`. "
            "Random prompts have another acceptance. `SERVER`: the host of the replica. `scenario.yaml`: the "
            "scenario of this plan."
        )
    return "\n\n".join(parts) + "\n"


def _engine(facts: RolloutFacts) -> list[str]:
    artefact = facts.plan.engine[facts.engine]
    if not artefact.text:
        return []
    parts = [f"## Engine\n\n```bash\n{artefact.text}\n```"]
    parts += [f"`{file}`:\n\n```\n{text.rstrip()}\n```" for file, text in artefact.files.items()]
    if artefact.unstated:
        options = "\n".join(f"- {option}" for option in artefact.unstated)
        parts.append(f"Without an option in this engine:\n\n{options}")
    return parts


def _stages(stages: Sequence[RolloutStage]) -> list[str]:
    """Each stage; gates that an earlier stage lists are only named."""
    texts, listed = [], set[RolloutGate]()
    for number, stage in enumerate(stages, start=1):
        lines = [f"## {number}. {stage.name.capitalize()}: {stage.share}", "", stage.purpose]
        if stage.commands:
            lines += ["", "```bash", *stage.commands, "```"]
        if stage.gates:
            lines += ["", "Go on if", ""]
        repeated = [gate.name for gate in stage.gates if gate in listed]
        if repeated:
            lines.append(f"- the gates above still hold: {', '.join(repeated)}")
        lines += [_gate(gate) for gate in stage.gates if gate not in listed]
        listed.update(stage.gates)
        texts.append("\n".join(lines))
    return texts


def _gate(gate: RolloutGate) -> str:
    text = f"- **{gate.name} {gate.threshold}**: {gate.why}"
    return text if gate.query is None else f"{text}\n  `{gate.query}`"


def _yaml(alerts: Sequence[Mapping[str, Any]]) -> str:
    """A Prometheus rule file; strings are quoted as JSON, which is YAML too."""
    lines = ["groups:", "  - name: speculation", "    rules:"]
    for rule in alerts:
        lines += [
            f"      - alert: {rule['alert']}",
            f"        expr: {json.dumps(rule['expr'])}",
            f"        for: {rule['for']}",
            f"        labels: {{severity: {rule['labels']['severity']}}}",
            f"        annotations: {{summary: {json.dumps(rule['annotations']['summary'])}}}",
        ]
    return "```yaml\n" + "\n".join(lines) + "\n```"


def _rollback() -> str:
    return (
        "## Rollback\n\nRoll back when an alert fires: restart the replicas without the options of "
        "speculation, those of the last stage first. Keep metrics and logs of the ten minutes before. "
        "`decodesim compare` names the cause from them and the baseline."
    )
