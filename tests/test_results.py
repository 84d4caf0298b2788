"""Results as types: written and read without a change, and what is wrong with one is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.design import read_texts
from llmfair.audits.kind import found_of
from llmfair.audits.listwise.results import ListwiseResults
from llmfair.errors import UsageError
from llmfair.io.files import plain, read
from llmfair.results import Reach, Results, absent_row, write
from tests.cli.command import ran, refuses

LISTS = ("listwise", "-q", "-n", "5", "--orders", "1", "--passes", "1", "--require", "P@20>=0.1")
PAIRS = ("pairwise", "-q", "-n", "5", "--pairs", "4")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Audits with answers, without any that can be read, and one that stops when settled."""
    made = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.setenv("LLMFAIR_REPORT", "0")
        for name, flags in {
            "listwise": LISTS,
            "unparseable": (*LISTS, "-m", "fake:biased,malformed=1", "--max-invalid", "1"),
            "given": (*LISTS, "--initial", "given"),
            "pairwise": PAIRS,
            "sequential": ("pairwise", "-q", "--sequential", "--max-pairs", "20"),
        }.items():
            ran(*flags, "-o", name)
    return made


@pytest.mark.parametrize("name", ["listwise", "unparseable", "given", "pairwise", "sequential"])
def test_what_is_read_is_written_again_byte_for_byte(folders: Path, name: str) -> None:
    path = folders / name / "results.json"
    found = found_of(json.loads(path.read_text()), path)
    assert isinstance(found, Results) and write(found) == path.read_text()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: d["chains"]["neutral"].update(asked="5"), "Expected `int`, got `str` - at `$.chains[...].asked`"),
        (lambda d: d["rows"][0].pop("n"), "Object missing required field `n` - at `$.rows[0]`"),
        (lambda d: d.pop("design"), "Object missing required field `design`"),
        (lambda d: d["findings"]["neutral"].update(conclusion="fair"), "Invalid enum value 'fair'"),
        (lambda d: d["rows"][0].update(p=1.5), "Expected `float` <= 1.0 - at `$.rows[0].p`"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_file_and_field(
    folders: Path, tmp_path: Path, spoil: Callable[[Any], Any], said: str
) -> None:
    document = json.loads((folders / "listwise" / "results.json").read_text())
    spoil(document)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError) as caught:
        read(path, ListwiseResults)
    assert caught.value.message.startswith(f"{path}: ") and said in caught.value.message


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: d["family"].update(size="two"), "Expected `int`, got `str` - at `$.family.size`."),
        (lambda d: d["design"].pop("conditions"), "Object missing required field `conditions` - at `$.design`."),
    ],
)  # fmt: skip
def test_a_damaged_run_is_one_sentence_on_the_command_line(
    folders: Path, tmp_path: Path, spoil: Callable[[Any], Any], said: str
) -> None:
    document = json.loads((folders / "listwise" / "results.json").read_text())
    spoil(document)
    (tmp_path / "run").mkdir()
    for name in ("manifest.json", "journal.jsonl"):
        (tmp_path / "run" / name).write_bytes((folders / "listwise" / name).read_bytes())
    (tmp_path / "run" / "results.json").write_text(json.dumps(document))
    for command in (("runs", "show"), ("report",)):
        refuses(f"results.json: {said}", *command, str(tmp_path / "run"))


def test_a_field_that_needs_another_is_left_out_with_it_and_null_beside_it() -> None:
    assert plain(Reach()) == {} and plain(Reach(high=1.0)) == {"high": 1.0}
    assert list(plain(absent_row("M", "v")).values()).count(None) == 7


def test_texts_are_those_that_were_asked_about(folders: Path, tmp_path: Path) -> None:
    lists, pairs = read_texts(folders / "listwise"), read_texts(folders / "pairwise")
    assert len(lists.queries) == len(pairs.queries) == 5 and lists.queries == pairs.queries
    assert len(lists.titles) > len(pairs.titles) > 5 and pairs.titles.items() <= lists.titles.items()
    with pytest.raises(UsageError, match=r"texts\.jsonl: cannot be read"):
        read_texts(tmp_path)
    (tmp_path / "texts.jsonl").write_text('{"query_id": "q", "text": "t"}\n{"doc_id": "d"}\n')
    with pytest.raises(UsageError, match=r"texts\.jsonl:2: Object has to have .* `doc_id` and `title`"):
        read_texts(tmp_path)
