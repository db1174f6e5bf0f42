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
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from railopt.base.arrays import write_atomic
from railopt.base.errors import InputError, printable
from railopt.files import openmetrics
from railopt.files.openmetrics import Family, Sample
from railopt.model.plan import Plan
from railopt.runtime.senders.report import Place, Report, link_loads

OURS = (b"# TYPE railopt_", b"# EOF\n")
"""How a file of these metrics begins, and one before any run."""


METERS = (  # counters of a link: name, what of its report a run adds, unit, in words
    ("sent_bytes", "bytes", "bytes", "Payload that a link carried."),
    ("chunks", "chunks", "", "Chunks that a link carried."),
    ("busy_seconds", "seconds", "seconds", "From the first post on a link to its last completion."),
    ("retries", "retries", "", "Chunks sent again on other links because this one died."),
    ("faults", "faults", "", "How often a link died."),
    ("replans", "replans", "", "How often chunks of a link were planned again."),
    ("readmissions", "readmissions", "", "How often a link was admitted again."),
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
                for i, (_, field, _, _) in enumerate(METERS):
                    counts[i] += getattr(link, field)
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
        runs, seconds, last, wrong = (
            _samples(labels, [counts[i] for counts in self._runs.values()]) for i in range(4)
        )
        makespan = 0 if self._plan is None else self._plan.makespan
        plans, planned, started = (
            [Sample({}, value)] if self._plans else []
            for value in (self._plans, makespan, self._started)
        )
        return [
            Family(f"railopt_{name}", kind, words, samples, "seconds" if "seconds" in name else "")
            for name, kind, words, samples in (
                ("plans", "counter", "Plans that were not that of the run before.", plans),
                ("runs", "counter", "Plans carried out.", runs),
                ("run_seconds", "counter", "Time of all runs.", seconds),
                ("last_run_seconds", "gauge", "Time of the last run.", last),
                ("wrong_chunks", "counter", "Chunks that arrived with wrong bytes.", wrong),
                (
                    "planned_seconds",
                    "gauge",
                    "Time of the last plan at its fabric's rates.",
                    planned,
                ),
                ("start_time_seconds", "gauge", "When counting began, since 1970.", started),
            )
        ]

    def _link_families(self) -> list[Family]:
        places = sorted(self._links)
        labels = [
            {"node": str(node), "peer": str(peer), "rail": str(rail)} for node, peer, rail in places
        ]
        counters = []
        for i, (name, _, unit, words) in enumerate(METERS):
            counted = _samples(labels, [self._links[place][i] for place in places])
            counters.append(Family(f"railopt_link_{name}", "counter", words, counted, unit))
        rates = ("achieved", "by a link in its last run"), ("planned", "for a link by its plan")
        gauges = []
        for i, (name, words) in enumerate(rates):
            full, unit = f"railopt_link_{name}_bytes_per_second", "bytes_per_second"
            rated = _samples(labels, [self._rates[place][i] for place in places])
            gauges.append(Family(full, "gauge", f"Rate {name} {words}.", rated, unit))
        return [*counters, *gauges]


def _samples(labels: list[dict[str, str]], values: list[int | float]) -> list[Sample]:
    return [Sample(*pair) for pair in zip(labels, values, strict=True)]


def _planned_rates(plan: Plan) -> dict[Place, float]:
    """(node, peer, rail) -> bytes per second, of links that the plan uses."""
    loads, seconds = link_loads(plan, np.arange(len(plan.chunks)), plan.rail), plan.makespan or 1
    return {place: size / float(seconds) for place, (size, _) in loads.items()}


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
            """Log nothing: stderr belongs to the run."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that went away is no error."""

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
