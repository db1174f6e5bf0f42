"""What runs measured, as metrics: counters and gauges by link, for Prometheus and what reads it.

    metrics = Metrics()
    config = SenderConfig(..., seen=metrics.seen)      # each run of a carrier is counted
    metrics.text()                                 # OpenMetrics
    with served(metrics, 9400): ...                # http://127.0.0.1:9400/metrics

A link is (node, peer, rail): from a node to a peer on a rail, in nodes and rails of the plan.  The
planned rate of a link is what the plan gives it over the time that the plan takes in all: a link
that stays below it makes the run longer than planned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import write_atomic
from railopt.base.errors import InputError, printable
from railopt.files import openmetrics
from railopt.files.openmetrics import Family, Sample
from railopt.model.plan import Plan
from railopt.runtime.senders.report import LinkReport, Place, Report

OURS = (b"# TYPE railopt_", b"# EOF\n")
"""How a file of these metrics begins, and one before any run."""


class LinkCounter(NamedTuple):
    """A counter of a link: its name, its unit, in words what it counts, and what a run adds."""

    name: str
    unit: str
    help: str
    of: Callable[[LinkReport], int | float]


METERS = (
    LinkCounter("sent_bytes", "bytes", "Payload that a link carried.", lambda link: link.bytes),
    LinkCounter("chunks", "", "Chunks that a link carried.", lambda link: link.chunks),
    LinkCounter(
        "busy_seconds",
        "seconds",
        "From the first post on a link to its last completion.",
        lambda link: link.seconds,
    ),
    LinkCounter(
        "retries",
        "",
        "Chunks sent again on other links because this one died.",
        lambda link: link.retries,
    ),
    LinkCounter("faults", "", "How often a link died.", lambda link: link.faults),
    LinkCounter(
        "replans", "", "How often chunks of a link were planned again.", lambda link: link.replans
    ),
    LinkCounter(
        "readmissions",
        "",
        "How often a link was admitted again.",
        lambda link: link.readmissions,
    ),
)


class Metrics:
    """What the runs of a process add up to; safe to read while it runs."""

    def __init__(self, path: str | None = None) -> None:
        """With a path, the text is written there now and after each run, whole or not at all."""
        self.unwritten = ""
        """Why the text could not be written after the last run, in words."""
        self._lock = threading.Lock()
        self._path, self._started = path, time.time()
        self._plan: Plan | None = None
        self._plans = 0
        self._planned: dict[Place, float] = {}
        self._links: dict[Place, list[int | float]] = {}
        self._rates: dict[Place, tuple[float, float]] = {}
        self._runs: dict[tuple[str, str], list[int | float]] = {}
        if path is not None:
            _require_ours(path)
            write_atomic(path, self.text(), force=True)

    def seen(self, plan: Plan, report: Report) -> None:
        """Count a run; of one that failed, what became of its links alone."""
        with self._lock:
            if not report.failed:
                runs = self._runs.setdefault((report.sender, report.policy), [0, 0.0, 0.0, 0])
                runs[0] += 1
                runs[1] += report.seconds
                runs[2] = report.seconds
                runs[3] += report.wrong or 0
            if plan is not self._plan:
                self._plan, self._planned = plan, _planned_rates(plan)
                self._plans += 1
            for link in report.links:
                place = link.node, link.peer, link.rail
                counts = self._links.setdefault(place, [0] * len(METERS))
                for i, meter in enumerate(METERS):
                    counts[i] += meter.of(link)
            achieved = {(k.node, k.peer, k.rail): k.rate or 0.0 for k in report.links}
            self._rates = {  # 0 for links that this plan does not use
                place: (achieved.get(place, 0.0), self._planned.get(place, 0.0))
                for place in self._links
            }
        if self._path is not None:
            self._write(self._path)

    def _write(self, path: str) -> None:
        """A full disk is no reason to end a run that other ranks take part in."""
        try:
            write_atomic(path, self.text(), force=True)
            self.unwritten = ""
        except InputError as error:
            self.unwritten = str(error)

    def text(self) -> str:
        """All of it as OpenMetrics."""
        with self._lock:
            return openmetrics.render([*self._run_families(), *self._link_families()])

    def _run_families(self) -> list[Family]:
        labels = [{"sender": sender, "policy": policy} for sender, policy in self._runs]
        columns = list(zip(*self._runs.values(), strict=True)) or [()] * 4

        def family(name: str, kind: str, words: str, column: int, unit: str = "") -> Family:
            values = zip(labels, columns[column], strict=True)
            samples = [Sample(label, value) for label, value in values]
            return Family(f"railopt_{name}", kind, words, samples, unit)

        planned = [] if self._plan is None else [Sample({}, self._plan.makespan)]
        plans = [Sample({}, self._plans)] if self._plans else []
        started = [Sample({}, self._started)] if self._plans else []
        return [
            Family(
                "railopt_plans", "counter", "Plans that were not that of the run before.", plans
            ),
            family("runs", "counter", "Plans carried out.", 0),
            family("run_seconds", "counter", "Time of all runs.", 1, "seconds"),
            family("last_run_seconds", "gauge", "Time of the last run.", 2, "seconds"),
            family("wrong_chunks", "counter", "Chunks that arrived with wrong bytes.", 3),
            Family(
                "railopt_planned_seconds",
                "gauge",
                "Time that the last run's plan takes at the rates of its fabric.",
                planned,
                "seconds",
            ),
            Family(
                "railopt_start_time_seconds",
                "gauge",
                "When this process began to count, in seconds since 1970.",
                started,
                "seconds",
            ),
        ]

    def _link_families(self) -> list[Family]:
        places = sorted(self._links)
        labels = [
            {"node": str(node), "peer": str(peer), "rail": str(rail)} for node, peer, rail in places
        ]

        def samples(values: list[int | float]) -> list[Sample]:
            return [Sample(*pair) for pair in zip(labels, values, strict=True)]

        counters = [
            Family(
                f"railopt_link_{meter.name}",
                "counter",
                meter.help,
                samples([self._links[place][i] for place in places]),
                meter.unit,
            )
            for i, meter in enumerate(METERS)
        ]
        rates = ("achieved", "by a link in its last run"), ("planned", "for a link by its plan")
        gauges = [
            Family(
                f"railopt_link_{name}_bytes_per_second",
                "gauge",
                f"Rate {name} {words}.",
                samples([self._rates[place][i] for place in places]),
                "bytes_per_second",
            )
            for i, (name, words) in enumerate(rates)
        ]
        return [*counters, *gauges]


def _planned_rates(plan: Plan) -> dict[Place, float]:
    """(node, peer, rail) -> bytes per second, of links that the plan uses."""
    chunks, fabric = plan.chunks, plan.fabric
    pair = chunks.src.astype(np.int64) * fabric.nodes + chunks.dst
    places, link = np.unique(pair * fabric.rails + plan.rail, return_inverse=True)
    size = np.zeros(len(places), np.int64)
    np.add.at(size, link, chunks.size)
    rates = size / float(plan.makespan or 1)
    return {
        (*divmod(place // fabric.rails, fabric.nodes), place % fabric.rails): rate
        for place, rate in zip(places.tolist(), rates.tolist(), strict=True)
    }


def _require_ours(path: str) -> None:
    """Refuse to replace a file that is no file of metrics of ours."""
    if not Path(path).is_file():
        return
    try:
        with Path(path).open("rb") as file:
            begins = file.read(max(map(len, OURS)))
    except OSError as error:
        raise InputError(f"{printable(path)}: {error.strerror}") from error
    if not begins.startswith(OURS):
        raise InputError(
            f"{printable(path)} exists and is no file of railopt's metrics: choose another name"
        )


@contextmanager
def served(metrics: Metrics, port: int) -> Iterator[int]:
    """Answer http://127.0.0.1:PORT/metrics while open; the port, a free one where 0 was given."""

    class MetricsHandler(BaseHTTPRequestHandler):
        timeout = 5  # seconds that a silent client is waited for

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/metrics", "/"):
                self.send_error(404, "expected /metrics")
                return
            body = metrics.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", openmetrics.CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: stderr is for the run."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Nothing: a client that went away."""

    try:
        server = Server(("127.0.0.1", port), MetricsHandler)
    except OSError as error:
        raise InputError(
            f"port {port} of 127.0.0.1: {error.strerror}: choose another for the metrics"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="railopt-metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
