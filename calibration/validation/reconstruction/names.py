"""Maps published words to the simulator's names: GPUs, precisions, data sets. Splits a text by side."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from calibration.validation.reconstruction.cases import Side

_PLAIN = r"(?:the )?(?:plain|baseline|base|vanilla|non-?spec\w*|without spec\w*|no spec\w*)"
_SPEC = r"(?:the )?(?:spec(?:ulative|ulation)?|with spec\w*|drafting)"
_OF_SIDE = r"(?: decoding| run| variant| side)?\s*(?:[:=]|\bis\b|\buses?\b)?\s*"
_BEFORE = {
    "plain": re.compile(rf"^{_PLAIN}\b{_OF_SIDE}", re.I),
    "spec": re.compile(rf"^{_SPEC}\b{_OF_SIDE}", re.I),
}
_AFTER = {
    "plain": re.compile(
        rf"\s*[(\[]?(?:for |on )?(?:the )?{_PLAIN}(?: decoding| runs?| variant| side)?[)\]]?$", re.I
    ),
    "spec": re.compile(
        rf"\s*[(\[]?(?:for |on )?(?:the )?{_SPEC}(?: decoding| runs?| variant| side)?[)\]]?$", re.I
    ),
}
_SPLITTERS = (r"\s*(?:;|\||\bvs\.?(?=\s)|\bversus\b)\s*", r"\s*(?:[;|,/]|\band\b)\s*")
"""Separators between the words about one side and those about the other, the most reliable first."""


def side_of(text: str | None, side: Side) -> str | None:
    """The part of a text about one side: "baseline vLLM 0.11; spec SGLang 0.5" → "vLLM 0.11" or "SGLang 0.5".

    A text that names no side is about both.
    """
    if not text:
        return text
    for splitter in _SPLITTERS:
        texts: dict[str, str] = {}
        for piece in re.split(splitter, text):
            for name in ("plain", "spec"):
                for pattern in (_BEFORE[name], _AFTER[name]):
                    rest = pattern.sub("", piece, count=1).strip()
                    if rest and rest != piece.strip():
                        texts.setdefault(name, rest)
        if len(texts) == 2:
            return texts[side]
    return text


class PublishedGpu(NamedTuple):
    """A GPU of the catalogue, with a note on what the text left open."""

    name: str
    note: str | None = None


GPU_NOT_STATED = "GPU not stated"
GPU_NOT_MODELLED = "GPU not modelled"

_FAMILIES = re.compile(
    r"(?<![a-z])(g?h[12]00|h20|h800|a100|a800|a10g?|a6000|l4|l40s?|l20|v100|t4|g?b[23]00|mi\d{3}x?|tpu|trainium\d?"
    r"|inferentia\d?|gaudi\d?|rtx|3090|4090|5090|ascend|910b|xpu|m[1-4] (?:max|ultra|pro))(?!\d)",
)


def gpu_of(text: str | None) -> PublishedGpu | str:
    """The GPU that a text names, or the reason why there is none: not stated, several, or not modelled."""
    words = re.sub(r"\b\d+ ?[x×] ?", " ", (text or "").lower().replace("-", " "))
    outside = set(_FAMILIES.findall(re.sub(r"\([^)]*\)", "", words)))
    kinds = (outside or set(_FAMILIES.findall(words))) - {"rtx"} or outside
    if len(kinds) != 1 or re.search(r"not (?:stated|retrieved|given)|unknown|class", words):
        return GPU_NOT_STATED
    kind = kinds.pop()
    if kind == "h200":
        return PublishedGpu("h200-sxm", "H200 NVL taken as the SXM board" if "nvl" in words else None)
    if kind == "h100":
        if "nvl" in words:
            return PublishedGpu("h100-nvl")
        if "hbm2e" in words or (re.search(r"9[46] ?gb", words) and re.search(r"sxm|hgx", words)):
            return PublishedGpu(
                "h100-sxm-94gb", "94 or 96 GB on a board with NVSwitch: the H100 with HBM2e taken"
            )
        if re.search(r"94 ?gb", words):
            return PublishedGpu("h100-nvl")
        return PublishedGpu("h100-pcie") if "pcie" in words else PublishedGpu("h100-sxm")
    if kind == "a100":
        pcie = "A100 PCIe taken as the SXM board" if "pcie" in words else None
        if re.search(r"40 ?g", words):
            return PublishedGpu("a100-sxm-40gb", pcie)
        return PublishedGpu(
            "a100-sxm-80gb", pcie or (None if "80" in words else "A100 without a size: 80 GB taken")
        )
    return GPU_NOT_MODELLED


class WeightFormat(NamedTuple):
    """A weight format of the scenario file; None keeps the checkpoint's."""

    format: str | None
    note: str | None = None


_FORMATS: tuple[tuple[str, str, str | None], ...] = (
    (r"mxfp4", "mxfp4", None),
    (r"(?:nv)?fp4|w4a8", "int4", "4-bit floats run as 4-bit weights on this GPU"),
    (r"int4|awq|gptq|w4a16|4[- ]?bit|q4", "int4", None),
    (r"fp8|w8a8|f8|8[- ]?bit float", "fp8", None),
    (r"int8|8[- ]?bit|q8", "fp8", "8-bit integers taken as fp8: as many bytes, the same rate"),
    (r"b?f(?:p|loat)?16|half|b16", "bf16", None),
)


def weights_of(text: str | None, model: str | None) -> WeightFormat:
    """The weight format of a precision text, or of a model name that includes one."""
    if text and (re.search(r"checkpoint native|as (?:shipped|released)", text, re.I)):
        text = None  # the checkpoint decides
    for words in (text, model):
        hits = [
            (match.start(), weights, note)
            for pattern, weights, note in _FORMATS
            if words and (match := re.search(rf"(?<![a-z0-9]){pattern}(?![0-9])", words.lower()))
        ]
        if hits:
            _, weights, note = min(hits)
            several = len({hit[1] for hit in hits}) > 1
            return WeightFormat(weights, f"precision {words!r}: {weights} taken" if several else note)
    return WeightFormat(
        None, None if not text else f"precision {text!r} not understood: the checkpoint's taken"
    )


def kv_cache_of(text: str | None) -> str:
    """The KV-cache format, bf16 or fp8."""
    return "fp8" if text and re.search(r"fp8|e4m3|e5m2|8[- ]?bit|int8", text.lower()) else "bf16"


DATASETS: tuple[tuple[str, str], ...] = (
    ("gsm8k", r"gsm ?8k"),
    ("cnn_dailymail", r"cnn|daily ?mail"),
    ("sharegpt", r"share ?gpt"),
    ("instructcoder", r"instruct ?coder"),
    ("mt_bench", r"mt ?bench"),
    ("humaneval", r"human ?eval|mbpp"),
    ("alpaca", r"alpaca"),
    ("spec_bench", r"spec ?bench"),
    ("math500", r"math ?500|hendrycks|\bmath\b"),
    ("aime", r"aime"),
    ("livecodebench", r"live ?code ?bench"),
    ("gpqa", r"gpqa"),
    ("financeqa", r"finance ?qa"),
    ("speed_bench", r"speed ?bench"),
    ("swe_bench", r"swe ?bench"),
    ("arxiv", r"arxiv|pg ?19|long ?bench|govreport"),
    ("wmt", r"wmt|translation"),
    ("qa", r"natural questions|\bqa\b|\brag\b"),
    ("summarization", r"summar\w+|xsum"),
    ("random", r"random|synthetic|dummy|fixed"),
)


@lru_cache(maxsize=1024)
def datasets_of(text: str | None) -> tuple[str, ...]:
    """The data sets that a text names, in its order."""
    words = re.sub(r"[\s_\-]+", " ", (text or "").lower())
    hits = [(match.start(), key) for key, pattern in DATASETS if (match := re.search(pattern, words))]
    return tuple(key for _, key in sorted(hits))
