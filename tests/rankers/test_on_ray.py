"""Scores made by processes of a Ray cluster: those that the ranker makes here, whatever happens to the processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from llmfair import registry
from llmfair.audits.rag.design import retriever_of
from llmfair.audits.rag.settings import RagSettings
from llmfair.nouns import Candidates, Document, Query
from llmfair.on_ray import PARTS, RankerOnRay
from llmfair.rankers.base import ScoringRanker
from llmfair.rankers.bm25 import Bm25
from tests import models
from tests.audits.rag.test_log import write_corpus

ROOT = Path(__file__).resolve().parents[2]
needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="ray is not installed: pip install 'llmfair[ray]'"
)
TOGETHER = 10


class Ranked(ScoringRanker):
    """Scores a title by its number, and by the query."""

    identity = "ranked"
    scored_together: int | None = TOGETHER

    def scores(self, candidates: Candidates) -> list[float]:
        return [float(one.title) + len(candidates.query.text) for one in candidates.documents]


class Costly(Ranked):
    costly = True


def documents(n: int) -> tuple[Document, ...]:
    return tuple(Document(f"d{number}", f"{number}") for number in range(n))


def lists_of(*items: tuple[Document, ...]) -> list[Candidates]:
    return [
        Candidates(Query(f"q{number}", "?" * number), of, {}, tuple(map(float, range(len(of)))))
        for number, of in enumerate(items)
    ]


class Here(RankerOnRay):
    """Scores in this process what would be sent, part by part."""

    def _scored(self, parts: Any) -> Any:
        self.parts = parts
        return [[list(self._make().scores(one)) for one in part] for part in parts]


@pytest.mark.parametrize("n", [0, 1, TOGETHER, 199, 200, 201, 555])
@pytest.mark.parametrize("processes", [1, 3])
def test_a_list_that_queries_share_is_scored_in_parts(n: int, processes: int) -> None:
    shared = lists_of(*[documents(n)] * 3)
    here = Here(Ranked, Ranked(), processes, None)
    assert [*here.scores_of_each(shared)] == [*Ranked().scores_of_each(shared)]
    sizes = [len(part[0].documents) for part in here.parts]
    assert len(sizes) <= PARTS * processes and all(size % TOGETHER == 0 for size in sizes[:-1])
    assert all(one.documents is part[0].documents for part in here.parts for one in part)


def test_lists_of_their_own_are_scored_whole() -> None:
    own = lists_of(documents(30), documents(30), documents(5))
    here = Here(Ranked, Ranked(), 2, None)
    assert [*here.scores_of_each(own)] == [*Ranked().scores_of_each(own)]
    assert [len(part) for part in here.parts] == [1, 1, 1]
    together = Ranked()
    together.scored_together = None
    shared = lists_of(*[documents(30)] * 2)
    here = Here(Ranked, together, 2, None)
    assert [*here.scores_of_each(shared)] == [*Ranked().scores_of_each(shared)]
    assert [len(one.documents) for part in here.parts for one in part] == [30, 30]


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        ("bm25", {"ray_workers": 2}, Bm25),
        ("tests-costly", {"ray_workers": 2}, RankerOnRay),
        ("tests-costly", {"engine": "ray"}, RankerOnRay),
        ("tests-costly", {}, Costly),
    ],
)
def test_what_takes_a_model_is_scored_where_models_answer(
    name: str, given: Any, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.names("ranker")
    monkeypatch.setitem(registry._found["ranker"], "tests-costly", lambda options: Costly())
    found = retriever_of(name, None, (), RagSettings.make(**given))  # type: ignore[arg-type]
    assert type(found) is kind


# With Ray: a cluster a command, which takes seconds to start


def audit(folder: Path, output: str, *flags: str, code: int = 0, **more: str) -> Any:
    """What `llmfair rag` found, beside the scores that it kept; what it said where it ends with another code."""
    (folder / "home").mkdir(exist_ok=True)
    cache = folder / f"cache-{output}"
    environment = {**os.environ, "HOME": str(folder / "home"), "LLMFAIR_CACHE_DIR": str(cache), **more}
    command = [sys.executable, *"-m llmfair rag -n 4 --samples 2 --no-report -q -o".split(), output]
    found = subprocess.run(
        [*command, *flags],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == code and "Traceback" not in found.stderr, found.stderr
    if code:
        return found.stderr
    (scores,) = (cache / "scores").iterdir()
    return json.loads(scores.read_bytes()), (folder / output / "metrics.csv").read_text().replace(output, "")


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("data", ["rag-sample", "corpus"])
def test_one_process_two_and_none_find_the_same(data: str, tmp_path: Path) -> None:
    models.needs_local()
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    models.encoder(tmp_path / "dense")
    write_corpus(tmp_path / "corpus", "Yes")
    flags = ("-d", data, "--retriever", "dense:dense")
    plain = audit(
        tmp_path, "plain", *flags, OMP_NUM_THREADS="1"
    )  # as Ray has it: sums by threads differ in a last digit
    for workers in ("1", "2"):
        there = audit(tmp_path, f"on-{workers}", *flags, "--ray-address", "local", "--ray-workers", workers)
        assert there == plain


MORTAL = """
import os
from pathlib import Path
from llmfair.on_ray import RankerOnRay
from tests.rankers.test_on_ray import Ranked, documents, lists_of

HERE = Path(__file__).parent

class Mortal(Ranked):
    identity = "ranked"

    def scores(self, candidates):
        begun = len([*HERE.glob("died-*")])
        if begun < int(os.environ["DEATHS"]) and candidates.query.query_id == "q2":
            (HERE / f"died-{begun}").touch()
            os._exit(1)
        return super().scores(candidates)

class Other(Ranked):
    identity = "another"

if __name__ == "__main__":
    from mortal import Mortal, Other
    from llmfair import on_ray
    from llmfair.errors import LlmfairError
    made = {"Mortal": Mortal, "Other": Other}[os.environ["MADE"]]
    lists = lists_of(*(documents(n) for n in (3, 4, 5, 6)))
    if "GPUS" in os.environ:
        import ray
        ray.init(address="local", num_gpus=int(os.environ["GPUS"]), include_dashboard=False)
    on_ray.START_SECONDS = 30.0
    try:
        found = [*RankerOnRay(made, Ranked(), 3, "local").scores_of_each(lists)]
    except LlmfairError as error:
        print(type(error).__name__, error.message)
    else:
        print(found == [*map(Ranked().scores, lists)])
"""


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"MADE": "Mortal", "DEATHS": "2"}, "True"),
        ({"MADE": "Mortal", "DEATHS": "0", "GPUS": "2"}, "True"),
        ({"MADE": "Mortal", "DEATHS": "99"}, "BackendError no process of the Ray cluster scores: "),
        (
            {"MADE": "Other", "DEATHS": "0"},
            "UsageError a process of the Ray cluster has another model: another",
        ),
    ],
    ids=["two deaths", "three processes share two GPUs", "again and again", "another model"],
)
def test_deaths_lose_no_score_and_end(more: Mapping[str, str], said: str, tmp_path: Path) -> None:
    (tmp_path / "mortal.py").write_text(MORTAL)
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", **more}
    found = subprocess.run(
        [sys.executable, "mortal.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert found.stdout.startswith(said), found.stdout + found.stderr
