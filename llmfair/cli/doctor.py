"""`llmfair doctor`: what this machine can run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmfair import terminal
from llmfair.cli.complete import OFFERED
from llmfair.cli.options import Json, flag

if TYPE_CHECKING:
    from llmfair.backends.base import Backend
    from llmfair.nouns import Completion, Request

Model = Annotated[
    str | None,
    flag(
        "Look at this model: where it would run, what it can do.",
        "--model",
        "-m",
        autocompletion=OFFERED["model"],
    ),
]
BaseUrl = Annotated[
    str | None,
    flag("Any OpenAI-compatible server (default: OPENAI_BASE_URL).", "--base-url"),
]
Ask = Annotated[bool, flag("Ask the model one question.", "--ask")]


def doctor(model: Model = None, base_url: BaseUrl = None, ask: Ask = False, as_json: Json = False) -> None:
    """What this machine can run, and what to set or install for the rest."""
    import os
    import platform

    import llmfair
    from llmfair import registry
    from llmfair.report.tables import Table

    backends = {name: (status, note) for name, status, note in _backends(base_url)}
    for name in registry.names("backend"):
        backends.setdefault(name, ("ready", "added, in this package or another"))
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
    seen = None if model is None else _look_at(model, base_url, ask)
    if as_json:
        terminal.print_json({"schema": 1, **facts, **({} if seen is None else {"model": seen})})
        return
    title = (
        f"llmfair {facts['llmfair']} · Python {facts['python']} · {facts['platform']} · {facts['cores']} cores · "
        f"{facts['gpu'] or 'no GPU'}"
    )
    rows = tuple((name, status, note) for name, (status, note) in sorted(backends.items()))
    notes = (
        f"rankers that ask no model: {', '.join(registry.names('ranker'))}",
        f"data: {', '.join(registry.names('dataset'))}",
        *(f"{model}: {key} {value}" for key, value in (seen or {}).items()),
    )
    terminal.print_table(Table(title, ("backend", "status", ""), rows, notes))


LOCAL = "pip install 'llmfair[local]'"
NEEDED = {
    "hf": (("torch", "transformers", "peft", "llguidance"), LOCAL),
    "cross-encoder": (("torch", "transformers", "sentence_transformers"), LOCAL),
    "nli": (("torch", "transformers"), LOCAL),
    "pyterrier": (("pandas", "pyterrier"), "pip install 'llmfair[pandas]' python-terrier"),
}
"""What backends in this process import, and how it is installed."""


def _backends(base_url: str | None) -> Iterator[tuple[str, str, str]]:
    """Name, status and note of each of our backends; nothing is imported that takes long."""
    import os
    from importlib.util import find_spec

    yield (
        "fake",
        "ready",
        "offline: fake:biased, fake:oracle, fake:random, fake:reader, fake:refiner, fake:name; fake:biased,pairwise=-1 "
        "injects log odds of -1",
    )
    key, elsewhere = "OPENAI_API_KEY", "--base-url" if base_url else "OPENAI_BASE_URL"
    compatible = base_url or os.environ.get("OPENAI_BASE_URL")
    server = f"the server of {elsewhere}" if compatible else "api.openai.com"
    if os.environ.get(key):
        yield "openai", "ready", f"{key} is set · {server}"
    elif compatible:
        yield "openai", "ready", f"{key} is not set; {server} may need none"
    else:
        yield "openai", "no", f"set {key}, or name any compatible server with --base-url"
    yield "python", "ready", "python:MODULE:FUNCTION, a ranker of your own in this folder"
    if base_url or os.environ.get("RERANK_BASE_URL"):
        yield "rerank", "ready", f"the endpoint of {'--base-url' if base_url else 'RERANK_BASE_URL'}"
    else:
        yield "rerank", "no", "name the address of an endpoint with --base-url, or set RERANK_BASE_URL"
    for name, (packages, install) in NEEDED.items():
        versions = _versions(packages)
        if missing := [package for package in packages if find_spec(package) is None]:
            yield name, "no", f"{install} ({', '.join(missing)} missing)"
        elif "torch" in packages:
            place = (
                "the CPU, as this build of torch knows no GPU" if "+cpu" in versions and _gpu() else _gpu()
            )
            yield name, "ready", f"{versions} · on {place or 'the CPU'}"
        else:
            yield name, "ready", versions
    if find_spec("vllm") is not None:
        yield "vllm", "ready", _versions(("vllm",))
    elif _gpu() == NVIDIA:
        yield "vllm", "no", "pip install 'llmfair[vllm]'"
    else:
        yield "vllm", "no", "needs an NVIDIA GPU; a server works: --base-url http://HOST:8000/v1"


NVIDIA = "an NVIDIA GPU"


def _gpu() -> str | None:
    """The kind of GPU, by its driver: asking torch would take seconds."""
    import platform
    from pathlib import Path

    if Path("/proc/driver/nvidia/version").exists():
        return NVIDIA
    return "an Apple GPU" if (platform.system(), platform.machine()) == ("Darwin", "arm64") else None


def _versions(packages: tuple[str, ...]) -> str:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # a rebuild under another name
            found.append(package)
    return " · ".join(found)


def _look_at(model: str, base_url: str | None, ask: bool) -> dict[str, Any]:
    """What can be said of one model; with `ask`, what it answers to a first question. Raises what it raises."""
    import asyncio

    from llmfair.asking.requests import chat_sampling
    from llmfair.audits.kind import kinds
    from llmfair.audits.subject import backend_of, sampling_of
    from llmfair.nouns import Request
    from llmfair.settings import AuditSettings

    at = () if base_url is None else (base_url,)
    asked: dict[str, Any] = {"model": (model,), "base_url": at, "limit": 1}
    settings = AuditSettings.make(**asked)
    backend = backend_of(model, settings)
    seen: dict[str, Any] = {"is": backend.identity, "can": ", ".join(sorted(backend.capabilities))}
    if ask:
        # the shortest question that any audit would begin with; simulated models do not answer all forms
        askers = [kind for kind in kinds() if kind.name in getattr(backend, "forms", (kind.name,))]
        first = (next(iter(kind.rendered(kind.settings.make(**asked)))) for kind in askers)
        chat = min(first, key=lambda chat: len(chat.said))
        request = Request(chat, chat_sampling(chat, sampling_of(settings)), "doctor", "doctor")
        answer = asyncio.run(_answer(backend, request))
        facts = getattr(backend, "facts", {})  # of a model in this process
        seen |= {key: value for key, value in facts.items() if isinstance(value, str)}
        seen |= {
            "answers": repr(answer.text),
            "ends by": str(answer.finish),
            "in seconds": round(answer.seconds, 2),
        }
    return seen


async def _answer(backend: Backend, request: Request) -> Completion:
    """One answer in one attempt. Raises Unavailable where a run would try again."""
    from llmfair.backends.base import RateLimited, Transient
    from llmfair.errors import Unavailable

    try:
        await backend.open()
        return await backend.complete(request)
    except (RateLimited, Transient) as error:
        raise Unavailable(f"no answer: {error}.", "a run would try again; check the server") from None
    finally:
        await backend.close()


def add(app: typer.Typer) -> None:
    app.command(rich_help_panel="Look", epilog="llmfair doctor\n\nllmfair doctor --json")(doctor)
