"""A picture of every kind of report: `python -m benchmarks.screenshots FOLDER`, run from the repository's root.

Simulated models answer, and every page is taken at 1280 and at 390 px, light and dark, from its head to its foot.
Needs a Chromium on PATH.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.report.reading import View, chromium, visit
from tests.tuning.answered import adapter

LLMFAIR = [sys.executable, "-m", "llmfair"]
VIEWS = [View(width, dark) for width in (1280, 390) for dark in (False, True)]
MODELS = ("fake:biased", "fake:oracle", "fake:biased,listwise=0.8")
RUNS = {
    "listwise": ["listwise"],
    "partition": ["listwise", "--design", "partition", "--max-invalid", "1"],
    "pairwise": ["pairwise", "--pairs", "20", "-m", "fake:biased,malformed=0.05", "--max-invalid", "1"],
    "sequential": ["pairwise", "--sequential", "--max-pairs", "200"],
    "rag": ["rag", "--retriever", "bm25", "--retriever", "bm25-okapi", "--alpha", "0,1,2,4,8"],
    "rag-other": ["rag", "-m", "fake:reader,follow=0.5", "--retriever", "bm25", "--retriever", "bm25-okapi"],
    "windows": ["study", "windows", "-n", "4", "--passes", "1"],
    **{
        f"{model}-{attribute}": ["listwise", "-m", model, "-a", attribute, "--passes", "1"]
        for model in MODELS
        for attribute in ("gender", "location")
    },
}
SHOWN = ("listwise", "partition", "pairwise", "sequential", "windows", "rag")
EVERYTHING = "document.querySelectorAll('details').forEach((one, place) => { one.open = place < 1 })"


def pages(folder: Path) -> dict[str, Path]:
    """The reports by name, each made by its command."""
    for name, asked in RUNS.items():
        llmfair(folder, *asked, "-o", name)
    adapter(folder / "adapter")
    several = [name for name in RUNS if name not in ("windows", "partition", "rag", "rag-other")]
    made = {name: folder / name / "report.html" for name in SHOWN}
    generators = ["rag", "rag-other"]
    for name, runs in {"several": several, "adapter": ["adapter"], "generators": generators}.items():
        llmfair(folder, "report", *runs, "-o", f"{name}.html")
        made[name] = folder / f"{name}.html"
    llmfair(folder, "score", "listwise", "-o", "score")
    llmfair(folder, "mitigate", "listwise", "-o", "mitigation")
    made["mitigation"] = folder / "mitigation" / "report.html"
    return made | {"score": folder / "score" / "report.html"}


def llmfair(folder: Path, *arguments: str) -> None:
    subprocess.run([*LLMFAIR, *arguments], cwd=folder, check=True, capture_output=True)


def main() -> None:
    if chromium() is None:
        sys.exit("no Chromium is on PATH")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    for name, page in pages(folder).items():
        for view, seen in zip(VIEWS, visit(page, VIEWS, [EVERYTHING]), strict=True):
            file = folder / f"{name}-{view.width}-{'dark' if view.dark else 'light'}.png"
            file.write_bytes(seen.png)
            print(file)


if __name__ == "__main__":
    main()
