"""Models in processes of a Ray cluster: the same files as without, whatever happens to the processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from llmfair import registry
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.rag.design import retriever_of
from llmfair.audits.rag.settings import RagSettings
from llmfair.audits.refine.settings import RefineSettings
from llmfair.audits.subject import backend_of
from llmfair.backends.base import BackendOptions
from llmfair.backends.fake import fake
from llmfair.errors import MissingExtra, UsageError
from llmfair.nouns import Candidates, Chat, Document, Message, Query, Request, Sampling, Text
from llmfair.on_ray import AHEAD, MOST_DEATHS, PARTS, ModelOnRay, RankerOnRay
from llmfair.rankers.base import ScoringRanker
from llmfair.rankers.bm25 import Bm25
from tests import models
from tests.cli.command import kept
from tests.servers import Reply, Server, rank

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="ray is not installed: pip install 'llmfair[ray]'"
)
ON_RAY = ("--engine", "ray", "--ray-address", "local")
OWN = {".lock", "manifest.json", "journal.jsonl"}
"""Files that say when and by which command a run was made."""


def test_what_asks_for_ray() -> None:
    assert not ListwiseSettings.make().on_ray
    ways: list[dict[str, Any]] = [{"engine": "ray"}, {"ray_workers": 2}, {"ray_address": "local"}]
    assert all(ListwiseSettings.make(**way).on_ray for way in ways)
    assert not RefineSettings.make().on_ray and RefineSettings.make(ray_workers=2).on_ray
    with pytest.raises(UsageError, match="engine is 'rye', but takes local or ray"):
        ListwiseSettings.make(engine="rye")
    with pytest.raises(UsageError, match="takes what searches: tantivy"):
        RefineSettings.make(engine="ray")
    with pytest.raises(UsageError, match="a second --base-url and Ray do not go together"):
        ListwiseSettings.make(engine="ray", base_url=("http://a/v1", "http://b/v1"))


def test_a_model_on_ray_is_the_same_model() -> None:
    here = backend_of("fake:biased", ListwiseSettings.make())
    there = backend_of("fake:biased", ListwiseSettings.make(ray_workers=3))
    assert there.identity == here.identity and there.reads_about == here.reads_about
    assert there.max_workers == 3 * (here.max_workers + AHEAD)


def test_without_ray_the_install_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match="--engine ray needs Ray") as caught:
        asyncio.run(on_ray(1).open())
    assert caught.value.hint == "pip install 'llmfair[ray]'"


def test_a_query_keeps_its_process_until_that_is_ahead() -> None:
    async def dealt() -> list[int]:
        backend, found = on_ray(2), []
        for process in backend._processes:
            process.standing = True
        for number in range(40):
            process = await backend._process_of(asked("q1"))
            process.waiting[number] = asyncio.get_running_loop().create_future()
            found.append(backend._processes.index(process))
        return found

    found = asyncio.run(dealt())
    assert len({*found[: 2 * AHEAD]}) == 1
    assert max(Counter(found).values()) - min(Counter(found).values()) <= 2 * AHEAD + 1


def on_ray(processes: int) -> ModelOnRay:
    options = BackendOptions()
    return ModelOnRay("fake:biased", options, fake("biased", options), processes, "local")


def asked(query_id: str) -> Request:
    chat = Chat((Message("user", "?"),), Text(), about={"query_id": query_id})
    return Request(chat, Sampling(), "key", "probe")


# With Ray: a cluster a test, which takes seconds to start.


def command(runs: Path, *flags: str) -> list[str]:
    fixed = "-m llmfair listwise --no-report --no-cache --runs-dir".split()
    return [sys.executable, *fixed, str(runs), *flags]


def environment(home: Path, more: Mapping[str, str] = {}) -> Mapping[str, str]:
    """Ray writes a token into the home folder."""
    home.mkdir(exist_ok=True)
    return {**os.environ, "HOME": str(home), "OPENAI_API_KEY": "none", **more}


def audit(home: Path, runs: Path, *flags: str, code: int = 0, more: Mapping[str, str] = {}) -> Path:
    found = subprocess.run(
        command(runs, *flags), env=environment(home, more), capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    assert found.returncode == code, found.stdout + found.stderr
    (folder,) = (path for path in runs.iterdir() if path.is_dir())
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """All that was found."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in OWN}


def answered(folder: Path) -> list[tuple[str, str]]:
    """Key and text of every answer, failures left out."""
    rows = map(json.loads, (folder / "journal.jsonl").read_text().splitlines()[1:])
    return [(row["key"], row["text"]) for row in rows if "key" in row]


def answers(folder: Path) -> dict[str, str]:
    return dict(answered(folder))


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("model", ["fake:biased", "hf:"])
def test_one_process_two_and_none_find_the_same(model: str, tmp_path: Path) -> None:
    if model == "hf:":
        models.needs_local()
        model += str(models.causal(tmp_path / "tiny"))
    flags = ("-m", model, "-n", "2", "--candidates", "8", "--orders", "1", "--max-invalid", "1")
    plain = audit(tmp_path / "home", tmp_path / "plain", *flags)
    assert len(files(plain)) > 5
    for workers in ("1", "2"):
        there = audit(tmp_path / "home", tmp_path / workers, *flags, *ON_RAY, "--ray-workers", workers)
        assert there.name == plain.name and files(there) == files(plain) and answers(there) == answers(plain)


def slowly(body: dict[str, Any], attempt: int) -> Reply:
    reply = rank(body, attempt)
    return Reply(reply.text, delay=0.1)


def below(driver: int) -> dict[int, str]:
    """The processes that a command started, itself left out, by number: what each says it is."""
    ps = ("ps", "-ewwo", "pid,ppid,args")
    found = subprocess.run(ps, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in found.splitlines()[1:]]
    families, parents = {driver}, {int(pid): int(parent) for pid, parent, _ in rows}
    while new := {pid for pid, parent in parents.items() if parent in families} - families:
        families |= new
    return {int(pid): said for pid, _, said in rows if int(pid) in families - {driver}}


def processes_of(driver: int) -> list[int]:
    """Those of the cluster in which models answer."""
    return [pid for pid, said in below(driver).items() if said.startswith("ray::Answering")]


def soon_gone(processes: Mapping[int, str]) -> None:
    """Asserts that none of the processes outlives the command that started them by much."""
    ended = time.monotonic()
    while left := {pid: said for pid, said in processes.items() if Path(f"/proc/{pid}/stat").exists()}:
        assert time.monotonic() - ended < 10, left
        time.sleep(0.1)


def lines(runs: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) - 1 for path in runs.glob("*/journal.jsonl"))


FLAGS = ("-n", "4", "--orders", "1", "-j", "8")


MORTAL = """
import os, sys, time
from pathlib import Path

HERE = Path(__file__).parent
if "default_worker" in sys.argv[0]:  # a process of Ray
    (HERE / f"start-{os.getpid()}").touch()
    if len([*HERE.glob("start-*")]) > int(os.environ["LIVE"]):
        os._exit(1)

def rank(query, documents):
    if query == os.environ.get("FATAL"):
        os._exit(1)
    time.sleep(0.5)
    with (HERE / "asked").open("a") as asked:
        asked.write("one\\n")
    return [float(len(document)) for document in documents]
"""
"""A ranker of which only the first LIVE processes begin, and that dies of one query, if any."""
RANKED = ("-m", "python:mortal:rank", "-j", "4", "--orders", "1", "--no-repeat")


def mortal(folder: Path, live: int, **more: str) -> Mapping[str, str]:
    """Writes the ranker; the variables that it reads."""
    (folder / "mortal.py").write_text(MORTAL)
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": paths, "LIVE": str(live), **more}


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("killed", "live", "code"),
    [(1, 2, 0), (2, 99, 0), (2, 2, 3)],
    ids=["one, again and again", "all at once", "all, for good"],
)
def test_deaths_lose_no_answer_and_end(killed: int, live: int, code: int, tmp_path: Path) -> None:
    more = mortal(tmp_path, live)
    plain = audit(tmp_path / "home", tmp_path / "plain", *RANKED, more=more)
    (tmp_path / "asked").unlink()
    runs = tmp_path / "killed"
    driver = subprocess.Popen(
        command(runs, *RANKED, *ON_RAY, "--ray-workers", "2"),
        env=environment(tmp_path / "home", more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(lambda: lines(runs) > 0, driver)
    for pid in processes_of(driver.pid)[:killed]:
        os.kill(pid, signal.SIGKILL)
    out, said = driver.communicate(timeout=200)
    assert driver.returncode == code, out + said
    assert "raylet" not in out and "Traceback" not in said
    if code:
        assert "all processes of the Ray cluster have died" in said
        assert len([*tmp_path.glob("start-*")]) == 2 * (1 + MOST_DEATHS)
    folder = audit(tmp_path / "home", runs, *RANKED, more=more)
    assert files(folder) == files(plain) and answers(folder) == answers(plain)
    assert len(answered(folder)) == len(answered(plain)), "no question is answered twice"
    again = (tmp_path / "asked").read_text().count("one") - len(answered(plain))
    assert 0 <= again <= 4, "only what the processes held is asked again"


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_question_that_kills_its_process_fails_alone(tmp_path: Path) -> None:
    more = mortal(tmp_path, 99, FATAL="Physics")
    folder = audit(
        tmp_path / "home", tmp_path / "runs", *RANKED, *ON_RAY, "--ray-workers", "2", code=3, more=more
    )
    failed = (folder / "failures.csv").read_text().splitlines()[1:]
    assert len(failed) == 1 and failed[0].startswith("physics/")
    assert "processes of the Ray cluster died" in failed[0]
    assert len(answers(folder)) == 7


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_all_that_was_answered(number: signal.Signals, tmp_path: Path) -> None:
    with Server(slowly) as server:
        runs, flags = tmp_path / "runs", (*server.flags, *FLAGS, *ON_RAY, "--ray-workers", "2")
        driver = subprocess.Popen(
            command(runs, *flags), env=environment(tmp_path / "home"), start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        wait_for(lambda: lines(runs) > 20, driver)
        processes = below(driver.pid)
        if number == signal.SIGINT:
            os.killpg(driver.pid, number)  # as a terminal does it
        else:
            driver.send_signal(number)
        said, _ = driver.communicate(timeout=60)
        assert driver.returncode == 128 + number, said
        soon_gone(processes)
        assert lines(runs) == len(server.requests), "answers in flight are kept, too"
        folder = audit(tmp_path / "home", runs, *flags)
        assert lines(runs) == len(server.requests) == kept("manifest", folder)["planned_calls"]


def wait_for(condition: Any, driver: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        if condition():
            return
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)
    raise AssertionError("nothing happened")


@needs_ray
@pytest.mark.slow
def test_where_no_cluster_runs_the_way_to_one_is_said(tmp_path: Path) -> None:
    found = subprocess.run(
        command(tmp_path / "runs", "--engine", "ray", "--ray-address", "127.0.0.1:9"),
        env=environment(tmp_path / "home"), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert found.returncode == 2 and "ray start --head" in found.stderr and "Traceback" not in found.stderr
    assert not list((tmp_path / "runs").glob("*"))


# Scores of rankers: those that they make here, whatever happens to the processes


ROOT = Path(__file__).resolve().parents[2]
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


MORTAL_SCORES = """
import os
from pathlib import Path
from llmfair.on_ray import RankerOnRay
from tests.backends.test_on_ray import Ranked, documents, lists_of

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
    (tmp_path / "mortal.py").write_text(MORTAL_SCORES)
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", **more}
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 200}
    found = subprocess.run([sys.executable, "mortal.py"], cwd=tmp_path, env=environment, **how)
    assert found.stdout.startswith(said), found.stdout + found.stderr
