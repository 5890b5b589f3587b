"""Metrics of serving engines, as Prometheus text or JSON: the scrapes of all files in the order given."""

from __future__ import annotations

from collections.abc import Iterator

from calibration.telemetry.fields import RecordFields
from calibration.telemetry.reader import TelemetryReader
from calibration.telemetry.readers import sglang_metrics, vllm_metrics
from calibration.telemetry.readers.prometheus_api import is_answer, samples_of
from calibration.telemetry.reading import Reading
from calibration.telemetry.scrapes import MOST_SCRAPES, STARTED, Scrape, Series, sample_of
from simulator.errors import InputError, Problem

_ENGINE_NAMES = vllm_metrics.NAMES | sglang_metrics.NAMES
_NAMES = _ENGINE_NAMES | {STARTED}


class PrometheusReader(TelemetryReader):
    """`/metrics` of vLLM and SGLang; a file may hold several scrapes, one after another."""

    title = "metrics of vLLM or SGLang: Prometheus text (/metrics), or JSON of Prometheus' query API"

    def __init__(self) -> None:
        super().__init__()
        self._scrapes: list[Scrape] = []
        self._known: dict[Series, Series] = {}

    def begin(self, file: str, name: str) -> None:
        """The next scrape is of another file."""
        super().begin(file, name)
        self._scrapes.append(Scrape(file, name))

    def line(self, text: str) -> bool:
        """Take a sample of an engine. Raises DamagedError."""
        if text[:5] not in ("vllm:", "vllm_", "sglan", "proce"):
            return False
        sample = sample_of(text, _NAMES)
        if sample is None:
            return False
        self._add(*sample)
        return sample[0].name != STARTED

    def record(self, record: RecordFields) -> bool:
        """Take an answer of the query API: a scrape for each time. Raises DamagedError."""
        if not is_answer(record):
            return False
        times = list(samples_of(record, _ENGINE_NAMES))
        for samples in times:
            for series, value in samples:
                self._add(series, value)
        return bool(times)

    def _add(self, series: Series, value: float) -> None:
        scrape = self._scrapes[-1]
        again = series.name == STARTED and scrape.started is not None
        if again or scrape.repeats(series):
            if len(self._scrapes) > MOST_SCRAPES:
                message = f"more than {MOST_SCRAPES:,} scrapes"
                raise InputError(Problem(file=self.file, message=message, allowed="every tenth of them, say"))
            self._scrapes.append(scrape := Scrape(self.file, self.name))
        scrape.add(self._known.setdefault(series, series), value)

    def readings(self) -> Iterator[Reading]:
        """One reading per engine."""
        for module, prefix in ((vllm_metrics, "vllm:"), (sglang_metrics, "sglang:")):
            own = [_of(scrape, prefix) for scrape in self._scrapes]
            own = [scrape for scrape in own if scrape.values]
            if own:
                yield module.reading_of(own)


def _of(scrape: Scrape, prefix: str) -> Scrape:
    values = {series: value for series, value in scrape.values.items() if series.name.startswith(prefix)}
    return Scrape(scrape.file, scrape.name, values, scrape.started)
