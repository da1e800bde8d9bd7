"""A real Prometheus that scrapes each second, with queries as KEDA makes them."""

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from delayed_topics_devcluster.packages import program_of
from delayed_topics_devcluster.ports import free_ports

ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Prometheus:
    """The Prometheus of one test. `url`: without a trailing slash."""

    url: str

    def values(self, query: str) -> list[float]:
        """Returns the result of an instant query, one value for each series. Empty while Prometheus does not answer yet."""
        try:
            address = f"{self.url}/api/v1/query?query={urllib.parse.quote(query)}"
            with urllib.request.urlopen(address, timeout=ANSWER_SECONDS) as answer:
                found = json.load(answer)
        except (urllib.error.URLError, ConnectionError):
            return []
        return [float(series["value"][1]) for series in found["data"]["result"]]


@contextmanager
def scraping(target: str, folder: Path, *, pods: Sequence[str]) -> Iterator[Prometheus]:
    """Runs Prometheus. `target`: host and port, which are scraped as each of these pods. `folder`: where Prometheus writes."""
    targets = [{"targets": [target], "labels": {"namespace": "delayed-topics", "pod": pod}} for pod in pods]
    scraped = {"job_name": "pods", "static_configs": targets}
    config = folder / "prometheus.json"
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [scraped]}))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    flags = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={address}"]
    with (
        (folder / "prometheus.log").open("wb") as log,
        subprocess.Popen([program_of("prometheus", "prometheus"), *flags], stdout=log, stderr=log) as process,
    ):
        try:
            yield Prometheus(f"http://{address}")
        finally:
            process.kill()
