"""A model that is an object of the caller's own: what names it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import llmfair
from llmfair.backends.given import Given

PAIRS: dict[str, Any] = {"pairs": 4, "noise_share": 0, "report": False}
WRITTEN = """
class Shouts:
    name = "shouts"

    async def complete(self, request):
        return "{answer}"
"""


@pytest.mark.whole
def test_an_object_whose_code_was_edited_is_another_model(tmp_path: Path) -> None:
    def written(answer: str) -> Any:
        path = tmp_path / f"shouts_{len(list(tmp_path.glob('shouts_*')))}.py"
        path.write_text(WRITTEN.format(answer=answer))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module.Shouts()

    first = llmfair.audit_pairwise(model=written("[1] > [2]"), output="run", **PAIRS)
    assert llmfair.audit_pairwise(model=written("[1] > [2]"), output="run", **PAIRS).rows == first.rows
    with pytest.raises(llmfair.RunConflict, match=r"belongs to other settings \(identity: 'object shouts "):
        llmfair.audit_pairwise(model=written("[2] > [1]"), output="run", **PAIRS)
    other = llmfair.audit_pairwise(model=written("[2] > [1]"), **PAIRS)
    assert other.results["findings"]["relevant"]["reason"] == "position_driven"
    unwritten: dict[str, Any] = {}
    exec(WRITTEN.format(answer="[1] > [2]"), unwritten)
    assert Given(unwritten["Shouts"]()).identity == "object shouts"


def test_a_bug_in_an_object_is_told_with_its_kind() -> None:
    class Broken:
        name = "broken"

        async def complete(self, request: llmfair.Request) -> str:
            return "first".index("z")  # type: ignore[return-value]

    with pytest.raises(llmfair.Incomplete, match=r" first: ValueError: substring not found\.") as caught:
        llmfair.audit_pairwise(model=Broken(), **PAIRS)
    assert "-v shows where" in caught.value.hint
