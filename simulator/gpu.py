"""GPUs: the figures of their datasheets. What a kernel really reaches is in a `Profile`, never here.

Peaks are dense (the datasheets print the figures with 2:1 sparsity, twice as high). Memory is what the driver
reports (`nvidia-smi`, memory.total), because serving engines size their KV cache by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from simulator.errors import InputError, unknown_name

_MIB = 1 << 20
_H100 = "NVIDIA H100 Tensor Core GPU datasheet, https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture whitepaper (GH100: SMs, L2), https://resources.nvidia.com/en-us-tensor-core"
_H100_PCIE = "NVIDIA H100 PCIe GPU product brief PB-11133-001_v02 (2022-11)"
_H100_HBM2E = "TSUBAME4.0 user guide: H100 SXM5 94 GB HBM2e, 2.4 TB/s (2,395.87 GB/s); compute as H100 SXM5"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet, https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet, https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
_AMPERE = "NVIDIA A100 Tensor Core GPU Architecture whitepaper (GA100: SMs, L2)"
_DRIVER = "nvidia-smi memory.total as printed by the driver, e.g. https://thundergolfer.com/blog/nvidia-gpu-memory-capacity"


@dataclass(frozen=True)
class Gpu:
    """One GPU model. `sources` names a source for every figure.

    `peak_flops_per_s` is by arithmetic type ("bf16", "fp8"); a type that is absent has no tensor-core path.
    `nvlink_bandwidth_bytes_per_s` is the sum of both directions, as datasheets print it; `nvlink_gpus` is the
    largest group that it joins (8: NVSwitch, 2: a bridge); wider groups talk over PCIe.
    """

    name: str
    title: str
    memory_bytes: int
    hbm_bandwidth_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    l2_bytes: int
    sms: int
    nvlink_bandwidth_bytes_per_s: float
    interconnect: str
    sources: Mapping[str, str]
    nvlink_gpus: int = 8
    pcie_bandwidth_bytes_per_s: float = 128e9

    def __post_init__(self) -> None:
        rates = ("hbm_bandwidth_bytes_per_s", "nvlink_bandwidth_bytes_per_s", "pcie_bandwidth_bytes_per_s")
        for field in ("memory_bytes", "l2_bytes", "sms", *rates):
            if not getattr(self, field) > 0:
                raise ValueError(f"{field} of {self.name} must be positive, not {getattr(self, field)}")
        if "bf16" not in self.peak_flops_per_s:
            raise ValueError(f"peak_flops_per_s of {self.name} lacks bf16")

    def link_bytes_per_s(self, gpus: int) -> float:
        """Both directions of the link that joins `gpus` GPUs: NVLink when it reaches that far, else PCIe."""
        nvlink = gpus <= self.nvlink_gpus
        return self.nvlink_bandwidth_bytes_per_s if nvlink else self.pcie_bandwidth_bytes_per_s


def _sources(datasheet: str, chip: str) -> Mapping[str, str]:
    return MappingProxyType(
        {
            "memory_bytes": _DRIVER,
            "hbm_bandwidth_bytes_per_s": datasheet,
            "peak_flops_per_s": f"{datasheet} (dense: half of the figure with sparsity)",
            "l2_bytes": chip,
            "sms": chip,
            "nvlink_bandwidth_bytes_per_s": datasheet,
            "interconnect": datasheet,
        }
    )


_ALL = (
    Gpu(
        "h100-sxm", "NVIDIA H100 SXM5 80 GB", 81_559 * _MIB, 3.35e12,
        MappingProxyType({"bf16": 989.4e12, "fp8": 1978.9e12}), 50 * _MIB, 132, 900e9,
        "NVLink 4 through NVSwitch", _sources(_H100, _HOPPER),
    ),
    Gpu(
        "h100-nvl", "NVIDIA H100 NVL 94 GB", 95_830 * _MIB, 3.9e12,
        MappingProxyType({"bf16": 835.5e12, "fp8": 1670.5e12}), 50 * _MIB, 132, 600e9,
        "NVLink 4 bridge between two cards, PCIe 5.0 x16", _sources(_H100, _HOPPER), nvlink_gpus=2,
    ),
    Gpu(
        "h100-sxm-94gb", "NVIDIA H100 SXM5 94 GB HBM2e", 95_830 * _MIB, 2.396e12,
        MappingProxyType({"bf16": 989.4e12, "fp8": 1978.9e12}), 50 * _MIB, 132, 900e9,
        "NVLink 4 through NVSwitch", _sources(_H100_HBM2E, _HOPPER),
    ),
    Gpu(
        "h100-pcie", "NVIDIA H100 PCIe 80 GB", 81_559 * _MIB, 2.0e12,
        MappingProxyType({"bf16": 756.5e12, "fp8": 1513e12}), 50 * _MIB, 114, 600e9,
        "NVLink 4 bridge between two cards, PCIe 5.0 x16", _sources(_H100_PCIE, _HOPPER), nvlink_gpus=2,
    ),
    Gpu(
        "h200-sxm", "NVIDIA H200 SXM 141 GB", 143_771 * _MIB, 4.8e12,
        MappingProxyType({"bf16": 989.4e12, "fp8": 1978.9e12}), 50 * _MIB, 132, 900e9,
        "NVLink 4 through NVSwitch", _sources(_H200, _HOPPER),
    ),
    Gpu(
        "a100-sxm-80gb", "NVIDIA A100 SXM4 80 GB", 81_920 * _MIB, 2.039e12,
        MappingProxyType({"bf16": 312e12}), 40 * _MIB, 108, 600e9,
        "NVLink 3 through NVSwitch", _sources(_A100, _AMPERE), pcie_bandwidth_bytes_per_s=64e9,
    ),
    Gpu(
        "a100-sxm-40gb", "NVIDIA A100 SXM4 40 GB", 40_960 * _MIB, 1.555e12,
        MappingProxyType({"bf16": 312e12}), 40 * _MIB, 108, 600e9,
        "NVLink 3 through NVSwitch", _sources(_A100, _AMPERE), pcie_bandwidth_bytes_per_s=64e9,
    ),
)  # fmt: skip

GPUS: Mapping[str, Gpu] = MappingProxyType({entry.name: entry for entry in _ALL})
"""Every GPU known by name. A new one is an entry here, and a profile from `calibrate`."""


def gpu(name: str) -> Gpu:
    """The GPU of that name. Raises InputError, which lists the known names."""
    try:
        return GPUS[name]
    except KeyError:
        raise InputError(unknown_name("GPU", name, GPUS, also="the path of a profile")) from None
