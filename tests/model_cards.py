"""What publishers say their models count, and what the models' own published code counts.

`total` and `active` are as printed: a figure is met within 1 %, or within half of its last digit where that
is more. `other_parts` is what a figure counts besides the decoder: a vision tower (counted
from the vision part of the same config by transformers 5.24), `"mtp"` modules that predict further tokens,
`"ends"` their own copies of embedding and head. `hub` in a source is the size that the Hugging Face page
shows, which counts every tensor of the checkpoint.
"""

from typing import NamedTuple

from simulator.models.model import Model


class Card(NamedTuple):
    """One row: a file of reference data or a catalogue name, and what its publisher says."""

    name: str
    total: str | None  # None: no figure found, the model is only loaded
    active: str | None
    source: str
    other_parts: tuple[str | int, ...] = ()


def least_active_parameters(model: Model) -> int:
    """The least that a publisher may call active: without embedding, head and routers."""
    routers = sum(
        layer.count * linear.parameters
        for layer in model.layers
        for linear in layer.linears
        if linear.name == "router"
    )
    head = 0 if model.tied_embeddings else model.head.parameters
    return model.active_parameters - model.embedding_parameters - head - routers


_QWEN3 = "model card, Model Overview: Number of Parameters and Number of Activated Parameters"
_VL = "hub; collection Qwen3-VL"
_LLAMA3 = "model card of Llama 3.1, Model Information: Params"
_GLM5 = "GLM-5 report arXiv 2602.15763, model table (744B, 40B); the same backbone"
_V3 = "model card, Model Summary and table of downloads"

CONFIGS = (
    Card("MiniMaxAI--MiniMax-M2.5", "229B", "10B", "hub; the 10B active is on the card of MiniMax-M2"),
    Card("MiniMaxAI--MiniMax-M2.7", "229B", "10B", "as MiniMax-M2.5, whose layers it has"),
    Card("MiniMaxAI--MiniMax-M3", "428B", "23B", "model card, Model Details (about 428B, about 23B)"),
    Card("Qwen--Qwen3-0.6B", "0.6B", None, _QWEN3),
    Card("Qwen--Qwen3-1.7B", "1.7B", None, _QWEN3),
    Card("Qwen--Qwen3-235B-A22B-FP8", "235B", "22B", _QWEN3),
    Card("Qwen--Qwen3-235B-A22B", "235B", "22B", _QWEN3),
    Card("Qwen--Qwen3-30B-A3B-FP8", "30.5B", "3.3B", _QWEN3),
    Card("Qwen--Qwen3-30B-A3B", "30.5B", "3.3B", _QWEN3),
    Card("Qwen--Qwen3-32B-FP8-Static-PerTensor", "32.8B", None, _QWEN3 + " of Qwen3-32B"),
    Card("Qwen--Qwen3-32B-FP8", "32.8B", None, _QWEN3),
    Card("Qwen--Qwen3-32B", "32.8B", None, _QWEN3),
    Card("Qwen--Qwen3-8B", "8.2B", None, _QWEN3),
    Card("Qwen--Qwen3-Coder-480B-A35B-Instruct", "480B", "35B", _QWEN3),
    Card("Qwen--Qwen3-VL-235B-A22B-Instruct", "236B", "22B", _VL, (576388336,)),
    Card("Qwen--Qwen3-VL-2B-Instruct", "2B", None, _VL, (406957056,)),
    Card("Qwen--Qwen3-VL-30B-A3B-Instruct", "31B", "3B", _VL, (538631408,)),
    Card("Qwen--Qwen3-VL-32B-Instruct", "33B", None, _VL, (595266800,)),
    Card("Qwen--Qwen3-VL-32B-Thinking", "33B", None, _VL, (595266800,)),
    Card("Qwen--Qwen3-VL-4B-Instruct", "4B", None, _VL, (415347712,)),
    Card("Qwen--Qwen3-VL-8B-Instruct", "9B", None, _VL, (576388336,)),
    Card("Qwen--Qwen3.5-122B-A10B", "122B", "10B", _QWEN3),
    Card("Qwen--Qwen3.5-27B", "27B", None, _QWEN3),
    Card("Qwen--Qwen3.5-35B-A3B", "35B", "3B", _QWEN3),
    Card("Qwen--Qwen3.5-397B-A17B", "397B", "17B", _QWEN3),
    Card("XiaomiMiMo--MiMo-7B-Base", "8B", None, "hub; the name rounds 7.6B down", ("mtp",)),
    Card("XiaomiMiMo--MiMo-V2-Flash", "309B", "15B", "model card, introduction"),
    Card("deepseek-ai--DeepSeek-R1", "671B", "37B", _V3),
    Card("deepseek-ai--DeepSeek-V3.2", "685B", "37B", "hub; active as DeepSeek-V3", ("mtp", "ends")),
    Card("deepseek-ai--DeepSeek-V3", "671B", "37B", _V3),
    Card("deepseek-ai--DeepSeek-V4-Flash", "284B", "13B", "model card, Model Downloads"),
    Card("deepseek-ai--DeepSeek-V4-Pro", "1.6T", "49B", "model card, Model Downloads"),
    Card("google--gemma-4-26B-A4B", "25.2B", "3.8B", "model card, Mixture-of-Experts model table"),
    Card(
        "meta-llama--Llama-4-Maverick-17B-128E-Instruct",
        "400B",
        "17B",
        "model card, Model Information: Params",
    ),
    Card(
        "meta-llama--Llama-4-Scout-17B-16E-Instruct",
        "109B",
        "17B",
        "model card, Model Information: Params; the vision tower is that of the hub's config.json (34 layers "
        "of 1408), which this file leaves out",
        (871932416,),
    ),
    Card("meta-llama--Meta-Llama-3.1-405B", "405B", None, _LLAMA3),
    Card("meta-llama--Meta-Llama-3.1-70B", "70.6B", None, "hub, and the card of Llama 3"),
    Card("meta-llama--Meta-Llama-3.1-8B", "8.03B", None, "hub, and the card of Llama 3"),
    Card("mistralai--Mixtral-8x22B-v0.1", "141B", "39B", "announcement 'Cheaper, Better, Faster, Stronger'"),
    Card("mistralai--Mixtral-8x7B-v0.1", "46.7B", "12.9B", "announcement 'Mixtral of experts'"),
    Card("moonshotai--Kimi-K2-Instruct", "1T", "32B", "model card, Model Summary"),
    Card("moonshotai--Kimi-K2.5", "1T", "32B", "model card, Model Summary"),
    Card("moonshotai--Kimi-K3", "2.8T", "104B", "announcement and model card, Model Summary"),
    Card("nvidia--Llama-3.1-70B-Instruct-FP8", "70.6B", None, "as Llama 3.1 70B, which it quantises"),
    Card(
        "nvidia--Llama-3_3-Nemotron-Super-49B-v1",
        "50B",
        None,
        "hub (collection Llama-Nemotron); the name's 49B rounds 49.9B down",
    ),
    Card("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "31.6B", "3.2B", "Nemotron 3 Nano report, table 1"),
    Card("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "120B", "12B", "model card, Total Parameters"),
    Card("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "550B", "55B", "model card, Total Parameters"),
    Card("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8", "550B", "55B", "model card, Total Parameters"),
    Card("nvidia--Nemotron-H-56B-Base-8K", "56B", None, "model card, Model Overview"),
    Card("openai--gpt-oss-120b", "116.8B", "5.1B", "gpt-oss model card arXiv 2508.10925, table 1"),
    Card("openai--gpt-oss-20b", "20.9B", "3.6B", "gpt-oss model card arXiv 2508.10925, table 1"),
    Card("sgl-project--DeepSeek-V4-Flash-FP8", "284B", "13B", "as DeepSeek-V4-Flash, which it repacks"),
    Card("sgl-project--DeepSeek-V4-Pro-FP8", "1.6T", "49B", "as DeepSeek-V4-Pro, which it repacks"),
    Card("stepfun-ai--Step-3.7-Flash-FP8", "196B", "11B", "model card: language backbone of the 198B"),
    Card("stepfun-ai--Step-3.7-Flash", "196B", "11B", "model card: language backbone of the 198B"),
    Card("zai-org--GLM-5-FP8", "744B", "40B", _GLM5),
    Card("zai-org--GLM-5.1-FP8", "754B", "40B", "hub", ("mtp",)),
    Card("zai-org--GLM-5.1", "754B", "40B", "hub", ("mtp",)),
    Card("zai-org--GLM-5.2-FP8", "753B", "40B", "hub", ("mtp",)),
    Card("zai-org--GLM-5.2", "753B", "40B", "hub", ("mtp",)),
    Card("zai-org--GLM-5.3-FP8", "753B", None, "hub, collection GLM-5.3", ("mtp",)),
    Card("zai-org--GLM-5.3", "753B", None, "hub, collection GLM-5.3", ("mtp",)),
    Card("zai-org--GLM-5", "744B", "40B", _GLM5),
)
"""One row for every file of the reference data."""

CATALOGUE = (
    Card("llama-2-7b-chat", "6.74B", None, "hub; paper arXiv 2307.09288 says 7B"),
    Card("llama-2-13b-chat", "13.0B", None, "hub; paper says 13B"),
    Card("llama-2-70b-chat", "69B", None, "hub; paper says 70B"),
    Card("llama-3-8b-instruct", "8.03B", None, "hub"),
    Card("llama-3-70b-instruct", "70.6B", None, "hub"),
    Card("llama-3.1-8b-instruct", "8.03B", None, "hub"),
    Card("llama-3.1-70b-instruct", "70.6B", None, "hub"),
    Card("llama-3.1-405b-instruct", "405B", None, _LLAMA3),
    Card("llama-3.2-1b-instruct", "1.23B", None, "model card, Model Information: Params"),
    Card("llama-3.2-3b-instruct", "3.21B", None, "model card, Model Information: Params"),
    Card("llama-3.3-70b-instruct", "70.6B", None, "hub"),
    Card("llama-4-scout-17b-16e-instruct", "109B", "17B", "model card: Params", (871932416,)),
    Card("llama-4-maverick-17b-128e-instruct", "400B", "17B", "model card: Params"),
    Card("vicuna-7b-v1.3", "6.7B", None, "LLaMA paper arXiv 2302.13971, table 2"),
    Card("vicuna-13b-v1.3", "13.0B", None, "LLaMA paper arXiv 2302.13971, table 2"),
    Card("vicuna-33b-v1.3", "32.5B", None, "LLaMA paper arXiv 2302.13971, table 2"),
    Card("qwen3-0.6b", "0.6B", None, _QWEN3),
    Card("qwen3-1.7b", "1.7B", None, _QWEN3),
    Card("qwen3-4b", "4.0B", None, _QWEN3),
    Card("qwen3-8b", "8.2B", None, _QWEN3),
    Card("qwen3-14b", "14.8B", None, _QWEN3),
    Card("qwen3-32b", "32.8B", None, _QWEN3),
    Card("qwen3-30b-a3b", "30.5B", "3.3B", _QWEN3),
    Card("qwen3-30b-a3b-instruct-2507", "30.5B", "3.3B", _QWEN3),
    Card("qwen3-coder-30b-a3b-instruct", "30.5B", "3.3B", _QWEN3),
    Card("qwen3-235b-a22b", "235B", "22B", _QWEN3),
    Card("qwen3-235b-a22b-instruct-2507", "235B", "22B", _QWEN3),
    Card("qwen3-coder-480b-a35b-instruct", "480B", "35B", _QWEN3),
    Card("qwen3-next-80b-a3b-instruct", "80B", "3B", _QWEN3),
    Card("qwen3.5-27b", "27B", None, _QWEN3),
    Card("qwen3.5-35b-a3b", "35B", "3B", _QWEN3),
    Card("qwen3.5-122b-a10b", "122B", "10B", _QWEN3),
    Card("qwen3.5-397b-a17b", "397B", "17B", _QWEN3),
    Card("qwq-32b", "32.5B", None, _QWEN3),
    Card("qwen2.5-7b-instruct", "7.61B", None, _QWEN3),
    Card("deepseek-v3", "671B", "37B", _V3),
    Card("deepseek-v3.1", "671B", "37B", _V3),
    Card("deepseek-r1", "671B", "37B", _V3),
    Card("deepseek-v3.2", "685B", "37B", "hub; active as DeepSeek-V3", ("mtp", "ends")),
    Card("deepseek-v4-flash", "284B", "13B", "model card, Model Downloads"),
    Card("deepseek-v4-pro", "1.6T", "49B", "model card, Model Downloads"),
    Card("glm-4.5", "355B", "32B", "model card, Model Introduction"),
    Card("glm-4.6", "355B", "32B", "as GLM-4.5, whose layers it has"),
    Card("glm-4.7", "355B", "32B", "as GLM-4.5, whose layers it has"),
    Card("glm-4.5-air", "106B", "12B", "model card, Model Introduction"),
    Card("glm-5", "744B", "40B", _GLM5),
    Card("glm-5.1", "754B", "40B", "hub", ("mtp",)),
    Card("glm-5.2", "753B", "40B", "hub", ("mtp",)),
    Card("mistral-7b-instruct-v0.3", "7.25B", None, "hub"),
    Card("mixtral-8x7b-instruct", "46.7B", "12.9B", "announcement 'Mixtral of experts'"),
    Card("mixtral-8x22b-instruct", "141B", "39B", "announcement 'Cheaper, Better, Faster, Stronger'"),
    Card("gpt-oss-20b", "20.9B", "3.6B", "gpt-oss model card arXiv 2508.10925, table 1"),
    Card("gpt-oss-120b", "116.8B", "5.1B", "gpt-oss model card arXiv 2508.10925, table 1"),
    Card("kimi-k2-instruct", "1T", "32B", "model card, Model Summary"),
    Card("kimi-k2.5", "1T", "32B", "model card, Model Summary"),
    Card("minimax-m2.5", "229B", "10B", "hub; the 10B active is on the card of MiniMax-M2"),
    Card("minimax-m3", "428B", "23B", "model card, Model Details (about 428B, about 23B)"),
    Card("gemma-4-26b-a4b-it", "25.2B", "3.8B", "model card, Mixture-of-Experts model table"),
    Card("smollm2-135m-instruct", "135M", None, "model card, Model Summary"),
    Card("smollm2-360m-instruct", "360M", None, "model card, Model Summary"),
    Card("smollm2-1.7b-instruct", "1.7B", None, "model card, Model Summary"),
)
"""Models of the catalogue by what their cards print; `unit/model_sizes.tsv` has exact totals of others."""

UNPUBLISHED = """
baichuan2-13b-chat baichuan2-7b-chat codellama-13b-instruct codellama-34b-instruct codellama-70b-instruct
codellama-7b-instruct deepseek-coder-33b-instruct deepseek-coder-6.7b-instruct deepseek-coder-v2-instruct
deepseek-coder-v2-lite-instruct deepseek-llm-67b-chat deepseek-llm-7b-chat deepseek-moe-16b-chat
deepseek-v2-chat deepseek-v2-lite-chat deepseek-v2.5 deepseek-v2.5-1210 exaone-4.5-33b gemma-4-31b-it
glm-4-32b glm-4-9b-0414 glm-4-9b-chat glm-4.7-flash glm-z1-32b glm-z1-9b granite-4.1-8b grok-1 intern-s1
kimi-linear-48b-a3b-instruct llama-160m llama-3.1-nemotron-ultra-253b-v1 llama-3.3-nemotron-super-49b-v1
llama-65b llama-68m minicpm-2b minicpm-2b-dpo minicpm3-4b ministral-3-3b-instruct ministral-3-3b-reasoning
ministral-3-8b-instruct ministral-3-8b-reasoning ministral-8b-instruct mistral-large-instruct
mistral-large-instruct-2407 mistral-nemo-instruct mistral-small-instruct moonlight-16b-a3b-instruct
open-llama-3b pixtral-large-instruct qwen3.5-0.8b sheared-llama-1.3b sheared-llama-2.7b solar-10.7b-instruct
tinyllama-1.1b-chat yi-1.5-34b-chat yi-1.5-6b-chat yi-34b-chat yi-6b-chat
""".split()
"""Models of the catalogue of a size of their own for which no total of the language part was found that says
more than their names do."""

INSTANTIATED = {
    "MiniMaxAI--MiniMax-M2.5": 228689748992,
    "MiniMaxAI--MiniMax-M3": 426174565632,
    "Qwen--Qwen3-0.6B": 596049920,
    "Qwen--Qwen3-1.7B": 1720574976,
    "Qwen--Qwen3-235B-A22B": 235093634560,
    "Qwen--Qwen3-30B-A3B": 30532122624,
    "Qwen--Qwen3-32B": 32762123264,
    "Qwen--Qwen3-8B": 8190735360,
    "Qwen--Qwen3-Coder-480B-A35B-Instruct": 480154875392,
    "Qwen--Qwen3.5-122B-A10B": 122111526912,
    "Qwen--Qwen3.5-27B": 26895998464,
    "Qwen--Qwen3.5-35B-A3B": 34660610688,
    "Qwen--Qwen3.5-397B-A17B": 396346350336,
    "XiaomiMiMo--MiMo-V2-Flash": 308778768832,
    "deepseek-ai--DeepSeek-R1": 671026404352,
    "deepseek-ai--DeepSeek-V3.2": 671877929216,
    "deepseek-ai--DeepSeek-V4-Flash": 284332230231,
    "deepseek-ai--DeepSeek-V4-Pro": 1572997179491,
    "google--gemma-4-26B-A4B": 25233141760,
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": 400711848960,
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": 107769861120,
    "meta-llama--Meta-Llama-3.1-405B": 405853388800,
    "meta-llama--Meta-Llama-3.1-70B": 70553706496,
    "meta-llama--Meta-Llama-3.1-8B": 8030261248,
    "mistralai--Mixtral-8x22B-v0.1": 140620634112,
    "mistralai--Mixtral-8x7B-v0.1": 46702792704,
    "moonshotai--Kimi-K2.5": 1026408209408,
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31577937344,
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": 120668687360,
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": 549308968960,
    "nvidia--Nemotron-H-56B-Base-8K": 56324350464,
    "openai--gpt-oss-120b": 116829156672,
    "openai--gpt-oss-20b": 20914757184,
    "stepfun-ai--Step-3.7-Flash": 195844496640,
    "zai-org--GLM-5": 743911199232,
    "zai-org--GLM-5.2": 743377000704,
}
"""Parameters of the text part as transformers 5.24 instantiates it from the same file (torch meta device)."""
