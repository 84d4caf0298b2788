"""What figures were made with, as manifests and results have it."""

from __future__ import annotations

import platform
from importlib.metadata import version

import llmfair

PACKAGES = ("numpy", "scipy", "ir-measures", "aiohttp", "openai", "tantivy")


def versions() -> dict[str, str]:
    """Names and versions of llmfair, of Python with its platform, and of the packages that take part."""
    return {
        "llmfair": llmfair.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{package: version(package) for package in PACKAGES},
    }
