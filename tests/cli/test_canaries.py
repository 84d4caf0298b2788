"""A canary in every place where a secret may stand: it goes to its own server, and is in no file and no output."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from llmfair.io import secrets
from tests.batch_server import BatchServer
from tests.batch_server import unwaiting as unwaiting
from tests.cli import command
from tests.cli.command import Outcome, only_run, refusal, well
from tests.folders import balanced, write_folder
from tests.servers import Reply, by_length, completion, rank, serving

MARK, NUMBER = "k4n4ry", 918273645546372819
EVERYWHERE = {
    "OPENAI_API_KEY": f"sk-{MARK}-openai",
    "RERANK_API_KEY": f"{MARK}-rerank",
    "COHERE_API_KEY": f"{MARK}-cohere",
    "HF_TOKEN": f"hf_{MARK}",
    "OPENAI_ORG_ID": f"org-{MARK}-0123456789",
    "OPENAI_CUSTOM_HEADERS": f"x-api-key: {MARK}-header\nx-team: {MARK}-of-a-name-unknown\ncookie: id={MARK}; b=2",
}
EXTRA = (
    "--extra", f'api_key="{MARK}-extra"', "--extra", f'extra_headers={{"Authorization":"Bearer {MARK}-deep"}}',
    "--extra", f'credentials={{"user":"{MARK}-user","of":[{NUMBER}]}}',
    "--extra", f'callback="http://u:{MARK}-login@h/x?token={MARK}-query"',
)  # fmt: skip
SMALL = {
    "listwise": ("-n", "1", "--orders", "1", "--passes", "1", "--conditions", "neutral", "--no-repeat"),
    "pairwise": ("-n", "1", "--pairs", "1", "--conditions", "relevant"),
    "rag": ("-n", "1"),
    "refine": ("-n", "1"),
}

Answer = Callable[[dict[str, Any]], tuple[int, dict[str, str], Any]]
"""(all that came: path, headers, body) -> status, headers, JSON"""


@dataclass
class Echo:
    """A server that answers whatever it is asked by what came."""

    answer: Answer
    asked: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def echo(answer: Answer) -> Iterator[Echo]:
    served = Echo(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode("utf-8", "replace")
            came = {"url": self.path, "headers": dict(self.headers.items()), "body": body}
            served.asked.append(came)
            status, headers, document = served.answer(came)
            content = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def __getattr__(self, name: str) -> Callable[[], None]:
            if name in ("do_GET", "do_POST"):
                return self.answer
            raise AttributeError(name)

        def log_message(self, *_: object) -> None: ...

    with serving(Handler) as served.port:
        yield served


def refuses_by_quoting(status: int, came: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
    return status, {}, {"error": {"message": json.dumps(came), "code": came["url"], "type": str(came)}}


def answers_by_quoting(came: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
    """A completion that repeats what came wherever there is room for it."""
    body = json.loads(came["body"])
    if came["url"].endswith("/rerank"):
        return 200, {}, {"results": by_length(body), "id": came, "model": str(came)}
    reply = rank(body, 1)
    told = Reply(f"{reply.text} {came}", message={"reasoning": str(came)})
    return 200, {}, {**completion(told, str(came["headers"])), "system_fingerprint": str(came)}


FAULTS: dict[str, Answer] = {
    "answers": answers_by_quoting,
    **{f"{status}": partial(refuses_by_quoting, status) for status in (400, 401, 429, 500)},
}


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in EVERYWHERE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(secrets, "noted", set())


def nowhere(*found: Outcome) -> None:
    """Holds that no canary is in what was said, nor in any file here."""
    marks = (MARK, f"{NUMBER}")
    for outcome in found:
        assert not any(mark in text for text in (outcome.out, outcome.err) for mark in marks), outcome
    for path in Path.cwd().rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            content = gzip.decompress(content) if path.suffix == ".gz" else content
            assert not any(mark.encode() in content for mark in marks), (path, content[:2000])


def llmfair(*arguments: str | Path) -> Outcome:
    """A command, which knows its line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["llmfair", *map(str, arguments)])
        return command.llmfair(*arguments)


def lists() -> Path:
    return write_folder(Path("lists"), balanced(1, 4, 4))


def asks(task: str, *more: str | Path) -> Outcome:
    own = ("-d", lists()) if task in ("listwise", "pairwise") else ()
    patience = ("--retries", "0", "--outage", "0s", "--max-wait", "1s", "--fresh")
    return llmfair(task, *own, *SMALL[task], *patience, "-v", *more)


@pytest.mark.parametrize(
    "fault", ["answers", "500", *(pytest.param(status, marks=pytest.mark.whole) for status in ("400", "429"))]
)
def test_a_server_that_repeats_all_it_was_sent_is_not_repeated(fault: str) -> None:
    with echo(FAULTS[fault]) as server:
        found = asks("listwise", "-m", "openai:any", "--base-url", server.url, *EXTRA)
        doctor = llmfair("doctor", "-m", "openai:any", "--base-url", server.url, "--ask")
    assert found.code == {"answers": 0, "400": 3}.get(fault, 1), found.err
    assert Path("cache", "answers.sqlite").stat().st_mode & 0o777 == 0o600
    sent = json.dumps(server.asked)
    named = "openai header extra deep user login query".split()
    assert all(f"{MARK}-{of}" in sent for of in named)
    nowhere(found, doctor, llmfair("doctor"))


def test_no_redirect_is_followed_and_nobody_listens() -> None:
    with echo(answers_by_quoting) as other:
        with echo(lambda came: (307, {"Location": other.url + "/chat/completions"}, {})) as server:
            found = asks("listwise", "-m", "openai:any", "--base-url", server.url, *EXTRA)
        assert server.asked and not other.asked
    gone = asks("listwise", "-m", "openai:any", "--base-url", server.url, *EXTRA)
    assert "refused" in gone.err
    nowhere(found, gone)


def test_what_is_refused_is_not_repeated() -> None:
    flags: list[tuple[str, ...]] = [
        ("--base-url", f"http://user:{MARK}-url@127.0.0.1:1/v1"),
        ("--base-url", f"http://127.0.0.1:1/v1?api_key={MARK}-query"),
        ("--extra", f"api_key={MARK}-not-json"),
        ("--template-arg", f"password={MARK}-argument", "--extra", "x"),
        ("--extra", f'api_key="{MARK}-two"', "--nonsense"),
        ("--extra", f"={MARK}-alone"),
        ("--extra", f'headers={{"api_key":"{MARK}-broken"'),
        ("--backend-arg", f"{MARK}-argument"),
        ("-d", f"https://user:{MARK}-url@host/lists?token={MARK}"),
    ]
    topics = llmfair("datasets", "fetch", "trec-fair/2021", "--topics", f"user:{MARK}-p@ss@host/f", "-v")
    assert "***@host/f: there is no such file." in topics.err
    nowhere(topics, *[llmfair("listwise", "-m", "openai:any", *more, "-v", "--json") for more in flags])


def test_a_password_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    for fault in ("500", "answers"):
        with echo(FAULTS[fault]) as proxy:
            monkeypatch.setenv("http_proxy", f"http://user:{MARK}-proxy@127.0.0.1:{proxy.port}")
            outcomes.append(asks("listwise", "-m", "openai:any", "--base-url", "http://elsewhere.invalid/v1"))
        assert "Proxy-Authorization" in proxy.asked[0]["headers"]
    nowhere(*outcomes)


@pytest.mark.parametrize(
    "text",
    [
        f'[listwise]\nopenai-token = "{MARK}"', f'base_url = "http://user:{MARK}-url@host/v1"',
        f'extra = [\'api_key="{MARK}-quoted"\']', f'base_url = 3\nextra = "api_key={MARK}"', f'api_key = "{MARK}',
    ],
)  # fmt: skip
def test_llmfair_toml(text: str) -> None:
    Path("folder").mkdir()
    Path("folder", "llmfair.toml").write_text(text)
    found = llmfair("listwise", "-m", "openai:any", "--config", "folder/llmfair.toml", "-v", "--dry-run")
    Path("folder", "llmfair.toml").unlink()
    nowhere(found)


def test_copies_of_a_collection_behind_a_password() -> None:
    answers: tuple[Answer, ...] = (
        lambda came: (200, {}, b'{"id": 1, "broken\n'),
        partial(refuses_by_quoting, 403),
    )
    for answer in answers:
        with echo(answer) as server:
            base = server.url.replace("://", f"://user:{MARK}-url@")
            fetched = [
                llmfair(*"datasets fetch trec-fair/2022 --yes --stream -v --topics".split(), f"{base}/{name}")
                for name in (f"topics.jsonl?token={MARK}-query", "topics.jsonl")
            ]
        who = base64.b64encode(f"user:{MARK}-url".encode()).decode()
        assert [one["headers"].get("authorization") for one in server.asked] == [f"Basic {who}"] * 2
        assert f"token={MARK}-query" in server.asked[0]["url"]
        assert "/topics.jsonl" in fetched[0].err and {one.code for one in fetched} <= {1, 2}
        nowhere(*fetched)


def test_another_key_asks_nothing_anew() -> None:
    with echo(answers_by_quoting) as server:
        flags = ("-m", "openai:any", "--base-url", server.url, "--server-name", "test", "--no-cache")

        def again(*more: str) -> Outcome:
            return well(llmfair("listwise", "-d", lists(), *SMALL["listwise"], *flags, *more))

        for number in (1, 2):
            found = again("--extra", f'api_key="{MARK}-{number}"')
            asked = len(server.asked)
        assert asked == len({one["body"] for one in server.asked}) and f"{MARK}-2" not in str(server.asked)
        again("--extra", "top_k=5")
        assert len(server.asked) == 2 * asked
    first = min(Path("runs").glob("*/manifest.json"), key=lambda path: path.stat().st_mtime)
    manifest = json.loads(first.read_text())
    assert 'api_key="***"' in str(manifest["flags"]) and 'api_key="***"' in str(manifest["invocations"])
    nowhere(found)


@pytest.mark.whole
@pytest.mark.parametrize(("task", "fault"), [("pairwise", "500"), ("rag", "answers"), ("refine", "answers")])
def test_the_other_audits(task: str, fault: str) -> None:
    with echo(FAULTS[fault]) as server:
        found = asks(task, "-m", "openai:any", "--base-url", server.url, *EXTRA)
        assert server.asked
    nowhere(found, *([llmfair("report", only_run(), "--evidence", "100")] if found.code == 0 else []))


@pytest.mark.whole
@pytest.mark.parametrize("fault", ["answers", "401"])
def test_rerank_endpoints(fault: str) -> None:
    with echo(FAULTS[fault]) as server:
        found = asks("listwise", "-m", "rerank:any", "--base-url", server.url, *EXTRA)
    assert f"{MARK}-rerank" in str(server.asked)
    nowhere(found)


@pytest.mark.whole
def test_batches(unwaiting: None) -> None:
    def refused(body: dict[str, Any], attempt: int) -> Reply:
        return Reply(status=400, body={"error": {"message": str(EVERYWHERE)}})

    told = f"[1] > [2] {EVERYWHERE}"
    parts = [{"type": "text", "text": told[at : at + 5]} for at in range(0, len(told), 5)]

    def unanswered(row: dict[str, Any]) -> bytes:
        return json.dumps({**row, "response": None, "error": {"code": str(EVERYWHERE)}}).encode()

    error = {"code": "x", "line": 1, "message": str(EVERYWHERE), "param": None}
    outcomes = []
    for respond, given in (
        (rank, {}),
        (refused, {}),
        (rank, {"write": unanswered}),
        (rank, {"refuse": lambda lines: error}),
        (lambda body, attempt: Reply(told), {}),
        (lambda body, attempt: Reply(message={"content": parts}), {}),
    ):
        with BatchServer(respond, **given) as server:
            outcomes.append(asks("pairwise", "-m", "openai:any", "--base-url", server.base_url, "--batch"))
        assert server.authorized == {f"Bearer {EVERYWHERE['OPENAI_API_KEY']}"}
    assert [one.code for one in outcomes] == [0, 1, 3, 1, 0, 0], outcomes
    nowhere(*outcomes)
    # what is sent is a file here, too
    refusal(llmfair("listwise", "-m", "openai:any", "--batch", *EXTRA), "--extra api_key")
