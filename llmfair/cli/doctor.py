"""`llmfair doctor`: what this machine can run."""

from __future__ import annotations

from llmfair.cli import console
from llmfair.cli.options import Json


def doctor(as_json: Json = False) -> None:
    """What this machine can run, and what to set or install for the rest."""
    import os
    import platform

    import llmfair
    from llmfair import registry
    from llmfair.report.tables import Table

    key = "OPENAI_API_KEY"
    base_url = os.environ.get("OPENAI_BASE_URL")
    server = "the server of OPENAI_BASE_URL" if base_url else "api.openai.com"
    if os.environ.get(key):
        openai = ("ready", f"{key} is set · {server}")
    elif base_url:
        openai = ("ready", f"{key} is not set; {server} may need none")
    else:
        openai = ("no", f"set {key}, or name any compatible server with --base-url")
    simulated = (
        "offline: fake:biased, fake:oracle, fake:random; fake:biased,pairwise=-1 plants log odds of -1"
    )
    backends = {"fake": ("ready", simulated), "openai": openai}
    for name in registry.names("backend"):
        backends.setdefault(name, ("ready", "from another package"))
    facts = {
        "llmfair": llmfair.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "backends": {name: {"status": status, "note": note} for name, (status, note) in backends.items()},
        "rankers": registry.names("ranker"),
        "datasets": registry.names("dataset"),
    }
    if as_json:
        console.print_json({"schema": 1, **facts})
        return
    title = f"llmfair {facts['llmfair']} · Python {facts['python']} · {facts['platform']} · {facts['cores']} cores"
    rows = tuple((name, status, note) for name, (status, note) in sorted(backends.items()))
    notes = (
        f"rankers that ask no model: {', '.join(registry.names('ranker'))}",
        f"data: {', '.join(registry.names('dataset'))}",
    )
    console.print_table(Table(title, ("backend", "status", ""), rows, notes))
