"""README's picture: `python -m benchmarks.picture docs/report.png`, run from the repository's root.

The first screen of the report of `llmfair listwise`. Needs a Chromium on PATH.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.report.reading import View, chromium, visit

WIDTH, HEIGHT = 1280, 690


def main() -> None:
    if chromium() is None:
        sys.exit("no Chromium is on PATH")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "llmfair", "listwise", "-o", "run", "-q"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        (seen,) = visit(Path(folder, "run", "report.html"), [View(WIDTH)])
    Image.open(io.BytesIO(seen.png)).crop((0, 0, WIDTH, HEIGHT)).quantize(64).save(sys.argv[1], optimize=True)


if __name__ == "__main__":
    main()
