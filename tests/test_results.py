"""Results as types: written and read without a change, and what is wrong with one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmfair.audits.design import read_texts
from llmfair.audits.kind import found_of
from llmfair.errors import UsageError
from llmfair.io.files import json_text, plain
from llmfair.nouns import Key
from llmfair.results import Reach, Results, absent_row
from tests.cli.command import copied


@pytest.mark.parametrize("kind", ["listwise", "pairwise", "sequential"])
def test_what_is_read_is_written_again_byte_for_byte(kind: str) -> None:
    path = copied(kind, "run") / "results.json"
    found = found_of(json.loads(path.read_text()), path)
    assert isinstance(found, Results) and json_text(found) == path.read_text()


def test_a_key_reads_as_what_tells_it_from_others() -> None:
    keys = (Key("neutral"), Key("pairs", "relevant"), Key("own", "relevant"))
    assert keys == ("neutral", "relevant", "own, relevant")
    for measure, key, stratum in (
        ("PreferenceOdds", Key("neutral"), "all"),
        ("PreferenceOdds(stratum=relevant)", Key("neutral"), "relevant"),
        ("AdjustedOdds", Key("pairs", "relevant"), "relevant"),
    ):
        row = absent_row(measure, key)
        assert (row.condition, row.stratum, row.key()) == (key.condition, stratum, key)


def test_a_field_as_by_default_is_left_out() -> None:
    assert plain(Reach()) == {} and plain(Reach(high=1.0)) == {"high": 1.0}
    assert list(plain(absent_row("M", Key("v"))).values()).count(None) == 7


def test_texts_are_those_that_were_asked_about(tmp_path: Path) -> None:
    (queries, titles), (same, fewer) = (read_texts(copied(name, name)) for name in ("listwise", "pairwise"))
    assert len(queries) == 5 and queries == same
    assert len(titles) > len(fewer) > 5 and fewer.items() <= titles.items()
    with pytest.raises(UsageError, match=r"texts\.jsonl: cannot be read"):
        read_texts(tmp_path)
    (tmp_path / "texts.jsonl").write_text('{"query_id": "q", "text": "t"}\n{"doc_id": 3}\n')
    with pytest.raises(UsageError, match=r"texts\.jsonl:2: .*expected `str"):
        read_texts(tmp_path)
