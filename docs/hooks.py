"""What the site has beyond its Markdown files: pages generated when it is built, and formulas as
MathML.

    theory/registry.md         proofs/THEOREMS.toml, formulas typeset (theory/formulas.toml)
    theory/T*.md               proofs/notes, each headed by its formulas
    experiments/NAME.md        an experiment's README and the paper's figures (expected.json)
    reference/commands/*.md    every command's help, from its parser
    reference/api/*.md         the API, from docstrings (mkdocstrings)

MkDocs calls the functions that are named on_*.
"""

from __future__ import annotations

import html
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from experiments.common import (  # noqa: E402
    NOT_TRIED,
    distance_text,
    headlines,
    inputs_text,
    not_tried,
    said_text,
    shown,
)

NOTES = ROOT / "proofs" / "notes"
EXPERIMENTS = ROOT / "experiments"
PAPERS = {
    "rails": "RailS, arXiv 2510.19262",
    "lpt": "RailS, arXiv 2510.19262",
    "fast": "FAST, arXiv 2505.09764",
    "hybridep": "HybridEP, arXiv 2510.19470",
    "pro": "Pro-Prophet, arXiv 2411.10003",
    "where": "none",
    "emulated": "none",
    "joint": "none",
    "which": "none",
}

# The rooms of the API, a page each: title -> the modules whose public names it shows.
ROOMS = {
    "Values": [
        "model.fabric",
        "model.leaves",
        "model.inside",
        "model.topology",
        "model.traffic",
        "model.chunks",
        "model.plan",
        "evidence.bracket",
        "evidence.certificate",
    ],
    "Making plans": [
        "policies",
        "policies.planner",
        "model.tokens",
        "cuda.planner",
        "moe.micro.device",
        "model.workloads",
        "model.background",
        "answers.convert",
    ],
    "Gaps, bounds and checks": [
        "answers.gap",
        "answers.frontier",
        "answers.compare",
        "answers.blame",
        "evidence.bounds",
        "answers.check",
        "checker",
    ],
    "Solver": [
        "solver.coupled.solve",
        "solver.coupled.race",
        "solver.fluid",
        "solver.local.solve",
        "solver.moving.bound",
        "solver.program.backends",
    ],
    "Schedules": [
        "schedule.synthesis",
        "schedule.value",
        "schedule.model",
        "answers.optimum",
        "solver.epochs.exchange",
    ],
    "Simulator": [
        "sim.run",
        "sim.flows",
        "sim.assumptions",
        "sim.node",
        "sim.direct",
        "sim.balancers",
        "sim.timeline",
        "sim.replan",
    ],
    "Runtime": [
        "runtime",
        "runtime.payload.layout",
        "runtime.senders",
        "runtime.senders.protocol",
        "runtime.senders.report",
        "runtime.senders.config",
        "runtime.senders.loopback",
        "runtime.senders.record",
        "runtime.senders.verbs",
        "runtime.senders.one_node",
        "runtime.rendezvous.launch",
        "runtime.rendezvous.join",
        "runtime.carried",
        "runtime.adapt",
        "runtime.benchmark",
        "runtime.metrics",
        "runtime.counters",
    ],
    "MoE": [
        "moe.weigh",
        "moe.joint",
        "moe.routing.trace",
        "moe.routing.files",
        "moe.routing.dispatch",
        "moe.routing.once",
        "moe.routing.window",
        "moe.placement.placement",
        "moe.placement.planners",
        "moe.placement.replicate",
        "moe.placement.packing",
        "moe.placement.improve",
        "moe.placement.repair",
        "moe.placement.moves",
        "moe.placement.eplb",
        "moe.placement.naming",
        "moe.placement.vllm",
        "moe.placement.vllm_plugin",
        "moe.placement.files",
        "moe.micro.slots",
        "moe.micro.solve",
        "moe.micro.batches",
        "moe.micro.tensors",
        "moe.routing.sources",
        "moe.routing.recorded",
        "moe.iteration.timemodel",
        "moe.iteration.timeline",
        "moe.question",
        "moe.comparison",
        "moe.assess",
        "moe.aim",
        "moe.presets",
    ],
    "PyTorch": [
        "torch.all_to_all",
        "torch.dispatcher",
        "torch.groups",
        "torch.routes",
        "torch.ways",
    ],
    "Hybrid": [
        "moe.hybrid.spec",
        "moe.hybrid.answer",
        "moe.hybrid.recorded",
        "moe.hybrid.gating",
        "moe.hybrid.migrate",
    ],
    "Sweeps and reports": [
        "sweep.spec",
        "sweep.client",
        "sweep.results",
        "report.figures",
        "report.gaps",
        "report.saving",
        "report.style",
        "report.page",
        "report.gantt",
    ],
    "Theorems": ["symbolic.registry", "symbolic.run"],
    "Units and errors": ["base.units", "base.errors"],
}


# ---------------------------------------------------------------- MkDocs calls these
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Generated pages get their places in the navigation."""
    pages = generated()
    places: dict[str, list[Any]] = {
        "Theory": [name for name in pages if name.startswith("theory/") and name.endswith(".md")],
        "Experiments": [name for name in pages if name.startswith("experiments/")],
        "Reference": [
            {"Commands": [name for name in pages if name.startswith("reference/commands/")]},
            {"API": [name for name in pages if name.startswith("reference/api/")]},
        ],
    }
    for entry in config.nav or []:
        for title, listed in entry.items():
            if title in places:
                listed.extend(places[title])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Generated pages and the notes' pictures join the files of docs/."""
    for name, text in generated().items():
        files.append(File.generated(config, name, content=text))
    for picture in sorted(NOTES.glob("*.svg")):
        files.append(File.generated(config, f"theory/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The list of experiments, where its page wants it."""
    if page.file.src_uri != "experiments/index.md":
        return markdown
    return markdown.replace("<!-- generated:experiments -->", _list_of_experiments())


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """What arithmatex marked as TeX becomes MathML; columns in docstrings stay columns."""
    if page.file.src_uri.startswith("reference/api/"):
        content = re.sub(r"<p>(.*?)</p>", _columns, content, flags=re.DOTALL)
    content = re.sub(
        r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>',
        lambda found: mathml(found[1], "block"),
        content,
        flags=re.DOTALL,
    )
    return re.sub(
        r'<span class="arithmatex">\\\((.*?)\\\)</span>',
        lambda found: mathml(found[1], "inline"),
        content,
        flags=re.DOTALL,
    )


def _columns(paragraph: re.Match[str]) -> str:
    """A paragraph whose words stand in columns, as it was written."""
    if re.search(r"\S {2,}\S", paragraph[1]) and "\n" in paragraph[1]:
        return f'<pre class="columns">{paragraph[1]}</pre>'
    return paragraph[0]


def mathml(tex: str, display: str) -> str:
    """TeX, escaped as in HTML -> MathML."""
    return str(convert(html.unescape(tex).strip(), display=display))


# ---------------------------------------------------------------- pages
_PAGES: dict[str, str] = {}


def generated() -> dict[str, str]:
    """Every generated page, path -> Markdown; made once."""
    if not _PAGES:
        makers: list[Callable[[], dict[str, str]]] = [theory, experiments, commands, api]
        for maker in makers:
            _PAGES.update(maker())
    return _PAGES


def theory() -> dict[str, str]:
    """The registry, and a page a theorem."""
    theorems = tomllib.loads((ROOT / "proofs" / "THEOREMS.toml").read_text(encoding="utf-8"))
    formulas = tomllib.loads((ROOT / "docs" / "theory" / "formulas.toml").read_text("utf-8"))
    entries: list[dict[str, Any]] = theorems["theorem"]
    pages = {"theory/registry.md": registry(entries, formulas)}
    for path in sorted(NOTES.glob("T*.md"), key=lambda path: int(path.stem[1:])):
        parts = [e for e in entries if re.match(r"T\d+", e["id"])[0] == path.stem]  # type: ignore[index]
        pages[f"theory/{path.name}"] = note(path.read_text(encoding="utf-8"), parts, formulas)
    return pages


def registry(entries: list[dict[str, Any]], formulas: dict[str, str]) -> str:
    """A section a theorem: statement, formula, hypotheses, what checks it."""
    lines = [
        "# The registry of theorems",
        "",
        "Generated from `proofs/THEOREMS.toml`. [Theory](index.md) explains statuses and symbols.",
        "",
        "| id | says | status | formula |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| [{entry['id']}](#{entry['id'].lower()}) | {entry['title']} | {entry['status']} | "
        f"${formulas[entry['id']]}$ |"
        for entry in entries
    ]
    for entry in entries:
        page = re.match(r"T\d+", entry["id"])[0]  # type: ignore[index]
        lines += ["", f"## {entry['id']} {entry['title']} {{ #{entry['id'].lower()} }}", ""]
        lines += [entry["statement"], "", f"$$\n{formulas[entry['id']]}\n$$", ""]
        facts = {
            "status": entry["status"],
            "range": entry.get("range"),
            "known": entry.get("known"),
            "would settle it": entry.get("settled_by"),
            "source": entry["source"],
            "hypotheses": "; ".join(entry.get("hypotheses", [])),
            "Coq": ", ".join(f"`{name}`" for name in entry.get("coq", [])),
            "checks": ", ".join(f"`{name}`" for name in entry.get("checks", [])),
            "counterexamples": ", ".join(f"`{name}`" for name in entry.get("counterexamples", [])),
            "page": f"[{page}]({page}.md)",
        }
        lines += [f"- {name}: {fact}" for name, fact in facts.items() if fact]
    return "\n".join(lines) + "\n"


def note(text: str, parts: list[dict[str, Any]], formulas: dict[str, str]) -> str:
    """A page of proofs/notes, with the formulas of its theorems under the title."""
    head, _, rest = text.partition("\n")
    rows = "\n".join(
        f"| [{part['id']}](registry.md#{part['id'].lower()}) | ${formulas[part['id']]}$ | "
        f"{part['status']} |"
        for part in parts
    )
    return f"{head}\n\n| | formula | status |\n|---|---|---|\n{rows}\n{typeset(rest)}"


_INDEXED = re.compile(
    r"(?<![\w`])(?P<var>[A-Z]|tx|rx|[abxyuvw])\[(?P<at>[a-z0-9](?:,[a-z0-9])*)\]"
    r"|(?<![\w`])(?P<name>[rcspwb])_(?P<sub>[kfnij]|max|last)(?!\w)"
)


def typeset(text: str) -> str:
    """Plain text's S[k,n] and r_k as italics with an index; code and links stay as they are."""
    pieces = re.split(r"(```.*?```|`[^`\n]*`|\]\([^)]*\))", text, flags=re.DOTALL)
    for i in range(0, len(pieces), 2):
        pieces[i] = _INDEXED.sub(
            lambda m: f"<i>{m['var'] or m['name']}</i><sub>{m['at'] or m['sub']}</sub>",
            pieces[i],
        )
    return "".join(pieces)


def _folders() -> list[Path]:
    return sorted(path.parent for path in EXPERIMENTS.glob("*/expected.json"))


def _paper(folder: Path) -> str:
    return PAPERS[folder.name.split("_")[0]]


def experiments() -> dict[str, str]:
    """A page an experiment, and the traces'."""
    pages = {f"experiments/{folder.name}.md": experiment(folder) for folder in _folders()}
    pages["experiments/traces.md"] = _outward((EXPERIMENTS / "traces/README.md").read_text("utf-8"))
    return pages


def experiment(folder: Path) -> str:
    """The README, then the paper's figures as a table."""
    text = _outward((folder / "README.md").read_text(encoding="utf-8"))
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    rows = [
        "",
        "## The paper's figures",
        "",
        f"`expected.json`, from {expected.get('source', _paper(folder))}. "
        "Ours and the verdicts are those recorded (`verdicts.json`) for the size that a row names, "
        f"full (`--full`) where there is one; `python -m experiments.{folder.name}.run` makes them "
        "again and fails where one changes.",
        "",
        "| figure | paper | ours | size | distance | verdict | tolerance "
        "| inputs | source | note |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    seen = shown(folder)
    for name, figure in expected.get("figures", {}).items():
        here = seen.get(name)
        cells = [
            name,
            said_text(figure, "paper"),
            *(
                (here["ours"], here["size"], distance_text(here), here["verdict"])
                if here
                else [""] * 4
            ),
            figure["tolerance"],
            inputs_text(figure.get("inputs", expected["inputs"])),
            *(figure.get(key, "") for key in ("source", "note")),
        ]
        rows.append("| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |")
    return text.rstrip() + "\n" + ("\n".join(rows) + "\n" if expected.get("figures") else "")


def _outward(text: str) -> str:
    """A README's links to files of the checkout become their names: the site does not hold them."""
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)[^)]*\)", r"\1", text)


def _list_of_experiments() -> str:
    rows = ["| experiment | what | paper |", "|---|---|---|"]
    for folder in _folders():
        title = (folder / "README.md").read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        rows.append(f"| [`{folder.name}`]({folder.name}.md) | {title} | {_paper(folder)} |")
    rows.append("| [`traces`](traces.md) | routing traces that the experiments use | |")
    return "\n".join([*rows, "", *_headlines()])


def _headlines() -> list[str]:
    """All headline claims of the papers, of the full size where it is recorded."""
    rows = [
        "## All headline claims",
        "",
        "| paper | claim | published | ours | size | distance | verdict | inputs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for folder in _folders():
        name, link = _paper(folder).partition(",")[0], f"({folder.name}.md)"
        for row in headlines(folder):
            cells = [row[key] for key in ("paper", "ours", "size", "distance", "verdict", "inputs")]
            rows.append(f"| {name} | [{row['claim']}]{link} | " + " | ".join(cells) + " |")
    for each in not_tried():
        said = [each[key] for key in ("paper", "claim", "published")]
        cells = [*said, "", "", "", NOT_TRIED, each["why"]]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def commands() -> dict[str, str]:
    """A page a command: its help, as a terminal of 100 columns shows it."""
    from railopt.cli.main import COMMANDS

    before, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "100"
    try:
        return {
            f"reference/commands/{name}.md": f"# railopt {name}\n\n{text[0].upper()}{text[1:]}.\n\n"
            f"```text\n{help_of(name)}```\n"
            for name, text in COMMANDS.items()
        }
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def help_of(command: str) -> str:
    """What `railopt COMMAND --help` prints."""
    from railopt.cli.main import parser_of

    return parser_of(command).commands[command].format_help()


def api() -> dict[str, str]:
    """A page a room, its public names from docstrings."""
    pages = {}
    for title, modules in ROOMS.items():
        name = re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
        parts = [f"# {title}\n"]
        parts += [f"::: railopt.{module}\n" for module in modules]
        pages[f"reference/api/{name}.md"] = "\n".join(parts)
    return pages
