"""What is injected into `fake:reader` is found: how often it reads, and how much more it heeds the first item."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audits.rag.test_rag import question, questions, ran, rows
from tests.audits.rag.test_released import labelled

QUERIES, HALF = 40, 6


@pytest.fixture
def data() -> tuple[str, ...]:
    """Questions of six items of either label; those of the right one are useful."""
    names = [f"q{n:02}" for n in range(QUERIES)]
    path = questions(*(question(name, "ab" * HALF) for name in names))
    labels = labelled(dict.fromkeys(names, "10" * HALF))
    return ("-d", str(path), "--useful", str(labels), "-k", "3", "--alpha", "0", "-o", "run")


@pytest.mark.whole
def test_the_share_of_answers_that_are_read(data: tuple[str, ...]) -> None:
    """Beside useful items alone every answer that is read is right."""
    ran(*data, "-m", "fake:reader,follow=0.7")
    row = rows(Path("run"))["gold", "EU", "", "all"]
    assert float(row["low"]) <= 0.7 <= float(row["high"])
    assert float(row["high"]) - float(row["low"]) < 0.15


@pytest.mark.whole
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_weight_of_the_first_slot(data: tuple[str, ...], share: float) -> None:
    """Lists in any order: of the answers read from the first item alone, one bears its own label always, and another's
    where they have it in common; of the others no slot has more. So the slots differ by share × (1 − P(common))."""
    ran(*data, "-m", f"fake:reader,position={share}")
    found = rows(Path("run"))
    first, *others = (
        float(found["bm25-0", "AttributionAt(by=overlap)", slot, "all"]["value"]) for slot in "123"
    )
    common = (HALF - 1) / (2 * HALF - 1)
    assert (first - sum(others) / 2) / (1 - common) == pytest.approx(share, abs=0.08)
