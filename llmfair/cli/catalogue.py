"""What there is to choose from: `llmfair prompts`, `strategies`, `measures`, and on this machine: `doctor`."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from textwrap import shorten
from typing import Any

import typer

import llmfair
from llmfair import registry, terminal
from llmfair.audits.kind import Kind, kinds
from llmfair.cli.options import View, argument, command, flag, group
from llmfair.errors import Unavailable, UsageError
from llmfair.io.files import SCHEMA
from llmfair.nouns import Completion, Request
from llmfair.settings.commands import AuditSettings
from llmfair.settings.declaration import MOST_NUMBERED

root = typer.Typer()
prompts = group("prompts", "List, show and render prompt templates.")
strategies = group("strategies", "How lists can be ordered by asking.")
measures = group("measures", "What can be measured.")
SOURCE = 60
"""Letters of a prompt's source in the list."""
SIZES = (40, 100)
"""Lists whose cost is shown."""


@command(prompts, "llmfair prompts list", "llmfair prompts list --json", name="list")
def list_prompts() -> View:
    """The templates that can be named with --prompt."""
    from llmfair.prompts import load_prompt, prompt_names, wordings

    words = {name: wording for task in prompt_names() for wording, name in wordings(task).items()}
    rows: list[dict[str, Any]] = [
        {"prompt": of.id, "wording": words.get(of.id), "source": of.source, "sha256": of.sha256}
        for of in map(load_prompt, prompt_names())
    ]
    cells = [
        (
            of["prompt"],
            of["wording"] or "",
            of["sha256"][:16],
            shorten(of["source"], SOURCE, placeholder=" …"),
        )
        for of in rows
    ]
    notes = (
        "--prompt takes a wording: general for items of any sort, the default of a folder of your own; wikiproject for "
        "the paper's articles, the default of sample, trec-fair/… and --preset paper",
        "the whole source, and every word: llmfair prompts show listwise",
        "one of your own: llmfair prompts show listwise-general > my.toml, change it, --prompt my.toml",
    )
    return View({"prompts": rows}, ("", ("prompt", "--prompt", "sha256", "source"), cells, notes))


@command(prompts, "llmfair prompts show listwise", "llmfair prompts show my-prompt.toml --json")
def show(name: str = argument("NAME", "Template name or TOML file.")) -> View:
    """A template as it stands."""
    from llmfair.prompts import load_prompt

    prompt = load_prompt(name)
    document = {"prompt": prompt.id, "sha256": prompt.sha256, "text": prompt.text}
    return View(document, prompt.text.removesuffix("\n"))


render = typer.Typer(name="render", help="Exactly the messages that would be sent.")
prompts.add_typer(render)


def add_render(kind: Kind) -> None:
    """Adds the command that shows the messages of one kind of audits."""
    words = kind.help("render")

    def run(
        settings: AuditSettings, style: str, number: int = flag(1, words.number, min=1, max=MOST_NUMBERED)
    ) -> None:
        chats = list(kind.rendered(settings))
        if number > len(chats):
            raise UsageError(
                f"there are {len(chats)} {kind.question}s, not {number}.", "choose a smaller --number"
            )
        rows = [{"role": of.role, "content": of.content} for of in chats[number - 1].messages]
        if style == "json":
            terminal.print_json({"schema": SCHEMA, "messages": rows})
        else:
            print("\n".join("{role}: {content}".format_map(row) for row in rows))

    command(render, *words.examples, name=kind.name, settings=kind.settings, does=words.does)(run)


for of in kinds():
    add_render(of)


@command(strategies, "llmfair strategies list", "llmfair strategies list --json", name="list")
def list_strategies() -> View:
    """What --strategy takes, with parameters, calls and rounds that wait for each other."""
    from llmfair.audits.listwise.settings import ListwiseSettings
    from llmfair.rankers.strategies import strategy_of

    reads = {"none": "text", "welcome": "log-probabilities, else text", "needed": "log-probabilities"}
    facts, rows = [], []
    for name in registry.names("strategy"):
        strategy = strategy_of(name, vars(ListwiseSettings()))  # under the settings of windows that are usual
        reading, does = reads[strategy.question.margins], registry.lookup("strategy", name).__doc__ or ""
        does, plans = does.partition("\n")[0].strip(), [(n, strategy.plan(n)) for n in SIZES]
        facts.append(
            {
                "strategy": name, "parameters": dict(strategy.parameters), "prompt": strategy.question.prompt,
                "reads": reading, "does": does,
                "plans": [
                    {"items": n, "calls": plan.calls, "rounds": plan.rounds, "at_most": not plan.exact}
                    for n, plan in plans
                ],
            }
        )  # fmt: skip
        takes = ",".join(f"{key}={value}" for key, value in strategy.parameters.items())
        costs = (f"{'≤ ' * (not plan.exact)}{plan.calls:,} ({plan.rounds:,})" for _, plan in plans)
        rows.append((name, takes, *costs, reading, does))
    notes = (
        "--strategy NAME:key=value,… in llmfair listwise, repeatable: one run each; llmfair plan listwise prices them "
        "side by side on your lists",
        "≤: at most, since what is asked hangs on the answers; windows by --window, --step and --passes",
        "one of your own is one file, joined by the entry point llmfair.strategies",
    )
    costs = (f"calls (rounds), {n} items" for n in SIZES)
    header = ("strategy", "parameters", *costs, "reads", "what it does")
    return View({"strategies": facts}, ("", header, rows, notes))


@command(measures, "llmfair measures list", "llmfair measures list --json", name="list")
def list_measures() -> View:
    """What --measures takes, with parameters, and which way is better."""
    facts, rows = [], []
    for name in registry.names("measure"):
        of = registry.lookup("measure", name)
        params = {key: [*words] if isinstance(words, tuple) else [] for key, words in of.params.items()}
        facts.append(
            {
                "measure": name, "of": of.reads.about, "label": of.label, "better": of.better, "cutoff": of.cutoff,
                "parameters": params, "aggregate": of.aggregate, "source": of.cite,
            }
        )  # fmt: skip
        cutoff = {"none": "", "optional": "@k or none", "required": "@k"}[of.cutoff]
        takes = ", ".join(f"{key}={'|'.join(words)}" if words else key for key, words in params.items())
        label = of.label if of.label != name else ""
        rows.append((name, of.reads.about, label, of.better or "", cutoff, takes, of.cite))
    notes = (
        "--measures NAME, NAME@20, NAME(key=value)@20, comma-separated; the first of several words is the default",
        "beside these, utility by ir_measures' names (P@20, nDCG@20, AP, RR)",
        "one of your own is one file, joined by the entry point llmfair.measures",
    )
    header = ("measure", "of", "in words", "better", "cutoff", "parameters", "source")
    return View({"measures": facts}, ("", header, rows, notes))


@command(root, "llmfair doctor", "llmfair doctor --json", panel="Look")
def doctor(
    model: str | None = flag(
        None, "Look at this model: where it would run, what it can do.", "--model", "-m"
    ),
    base_url: str | None = flag(None, "Any OpenAI-compatible server (default: OPENAI_BASE_URL)."),
    ask: bool = flag(False, "Ask the model one question."),
) -> View:
    """What this machine can run, and what to set or install for the rest."""
    backends = dict.fromkeys(registry.names("backend"), ("ready", "added, in this package or another"))
    backends |= {name: (status, note) for name, status, note in _backends(base_url)}
    facts = {
        "llmfair": llmfair.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "gpu": _gpu(),
        "backends": {name: {"status": status, "note": note} for name, (status, note) in backends.items()},
        "rankers": registry.names("ranker"),
        "datasets": registry.names("dataset"),
    }
    seen = {} if model is None else _look_at(model, base_url, ask)
    title = (
        "llmfair {llmfair} · Python {python} · {platform} · {cores} cores · ".format_map(facts)
        + f"{facts['gpu'] or 'no GPU'}"
    )
    rows = [(name, status, note) for name, (status, note) in sorted(backends.items())]
    notes = (
        f"rankers that ask no model: {', '.join(registry.names('ranker'))}",
        f"data: {', '.join(registry.names('dataset'))}",
        *(f"{model}: {key} {value}" for key, value in seen.items()),
    )
    document = facts | ({"model": seen} if seen else {})
    return View(document, (title, ("backend", "status", ""), rows, notes))


LOCAL = "pip install 'llmfair[local]'"
NEEDED = {
    "hf": (("torch", "transformers", "peft", "llguidance"), LOCAL),
    "cross-encoder": (("torch", "transformers", "sentence_transformers"), LOCAL),
    "nli": (("torch", "transformers"), LOCAL),
    "pyterrier": (("pyterrier",), "pip install python-terrier"),
    "vllm": (
        ("vllm",),
        "pip install 'llmfair[vllm]' beside an NVIDIA GPU, or --base-url http://HOST:8000/v1",
    ),
}
"""What backends in this process import, and how it is installed."""


def _backends(base_url: str | None) -> Iterator[tuple[str, str, str]]:
    """Name, status and note of each of our backends; nothing is imported that takes long."""
    yield (
        "fake",
        "ready",
        "offline: fake:biased, fake:oracle, fake:random, fake:reader, fake:refiner, fake:name; fake:biased,pairwise=-1 "
        "injects log odds of -1, and behind=GROUP names the group of several that they are of",
    )
    yield "python", "ready", "python:MODULE:FUNCTION, a ranker of your own in this folder"
    for name, variable, alone in (
        ("openai", "OPENAI_BASE_URL", bool(os.environ.get("OPENAI_API_KEY"))),
        ("rerank", "RERANK_BASE_URL", False),
    ):
        if base_url or os.environ.get(variable):
            yield name, "ready", f"the server of {'--base-url' if base_url else variable}"
        elif alone:
            yield name, "ready", "OPENAI_API_KEY is set · api.openai.com"
        else:
            key = "OPENAI_API_KEY, or " * (name == "openai")
            yield name, "no", f"set {key}{variable}, or name the address of a server with --base-url"
    for name, (packages, install) in NEEDED.items():
        if missing := [package for package in packages if importlib.util.find_spec(package) is None]:
            yield name, "no", f"{install} ({', '.join(missing)} missing)"
            continue
        try:
            versions = " · ".join(f"{package} {version(package)}" for package in packages)
        except ModuleNotFoundError:  # a rebuild under another name
            versions = " · ".join(packages)
        where = "the CPU" if "+cpu" in versions else _gpu() or "the CPU"
        yield name, "ready", versions + f" · on {where}" * ("torch" in packages)


def _gpu() -> str | None:
    """The kind of GPU, by its driver: asking torch would take seconds."""
    if Path("/proc/driver/nvidia/version").exists():
        return "an NVIDIA GPU"
    return "an Apple GPU" if (platform.system(), platform.machine()) == ("Darwin", "arm64") else None


def _look_at(model: str, base_url: str | None, ask: bool) -> dict[str, Any]:
    """What can be said of one model; with `ask`, what it answers to a first question. Raises what it raises."""
    from llmfair.asking.journal import chat_sampling
    from llmfair.audits.subject import backend_of, sampling_of
    from llmfair.io.net import RateLimited, Transient, wait

    at = () if base_url is None else (base_url,)
    values: dict[str, Any] = {"model": (model,), "base_url": at, "limit": 1}
    settings = AuditSettings.make(**values)
    backend = backend_of(model, settings)
    seen: dict[str, Any] = {"is": backend.identity, "can": ", ".join(sorted(backend.capabilities))}
    if not ask:
        return seen
    # the shortest question that any audit would begin with; simulated models do not answer all forms
    askers = [kind for kind in kinds() if kind.name in getattr(backend, "forms", (kind.name,))]
    first = (next(iter(kind.rendered(kind.settings.make(**values)))) for kind in askers)
    chat = min(first, key=lambda chat: len(chat.said))

    async def answered() -> Completion:
        try:
            await backend.open()
            sampling = chat_sampling(chat, sampling_of(settings))
            return await backend.complete(Request(chat, sampling, "doctor", "doctor"))
        except (RateLimited, Transient) as error:
            raise Unavailable(f"no answer: {error}.", "a run would try again; check the server") from None
        finally:
            await backend.close()

    answer = wait(answered())
    facts = getattr(backend, "facts", {})  # of a model in this process
    seen |= {key: value for key, value in facts.items() if isinstance(value, str)}
    return seen | {
        "answers": repr(answer.text),
        "ends by": str(answer.finish),
        "in seconds": round(answer.seconds, 2),
    }
