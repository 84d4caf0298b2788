"""Files that commands read as input, each in every form it may have, harmed before they are read."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.folders import balanced, write, write_folder
from tests.fuzz.harms import EVIL, copy, harm
from tests.fuzz.running import Case
from tests.lamp import write_lamp

LISTS = (*"-n 2 --orders 1 --passes 1 --no-repeat --conditions neutral,female --no-cache".split(),)
PAIRS = ("-n", "2", "--pairs", "2", "--no-cache")
ANSWERS = ("-n", "2", "--samples", "2", "--alpha", "1", "--no-cache")
FOLDER = ("docs.jsonl", "queries.tsv", "qrels.txt", "groups.tsv")
DATA = (*FOLDER, "attributes.toml", "candidates.run", "keywords.jsonl")
TABLES = ("table.csv", "table.tsv", "table.jsonl", "table.parquet")
JUDGED = ("--qrels", "data/qrels.txt", "--groups", "data/groups.tsv")
Lines = tuple[tuple[str, ...], ...]


def _of(data: str) -> Lines:
    return (
        ("listwise", "-d", data, *LISTS),
        ("pairwise", "-d", data, *PAIRS),
        ("datasets", "show", data),
        ("plan", "listwise", "-d", data),
        ("prompts", "render", "listwise", "-d", data),
        ("listwise", "-d", data, *LISTS, "-m", "bm25", "-o", "new", "--format", "md"),
    )


def _scored(run: str) -> Lines:
    return (
        ("score", run, *JUDGED),
        ("score", run, *JUDGED, "-o", "scored", "--json"),
        ("score", run, "-d", "data", "--format", "md"),
        ("rerank", run, "--with", "mmr", "-d", "data", "-o", "new.run"),
        ("rerank", run, "--with", "greedy", "-d", "data", "-o", "new.run.gz"),
    )


READ: Mapping[str, Lines] = {
    **{f"data/{name}": (*_of("data"), *_scored("own.run"), ("refine", "-d", "data", "-n", "1")) for name in DATA},
    **{name: _of(name) for name in TABLES},
    **{name: _scored(name) for name in ("own.run", "own.json", "own.csv")},
    "prompt.toml": (
        ("prompts", "show", "prompt.toml"),
        ("listwise", "--prompt", "prompt.toml", *LISTS),
        ("prompts", "render", "listwise", "--prompt", "prompt.toml"),
    ),
    "llmfair.toml": (("listwise", *LISTS), ("plan", "pairwise"), ("score", "own.run", *JUDGED), ("runs", "list"), ("listwise", "--config", "llmfair.toml", *LISTS)),
    "target.json": (("score", "own.run", *JUDGED, "--measures", "AWRF(target=target.json)@5"),),
    "ids.txt": (("listwise", "-d", "data", "--queries", "@ids.txt", *LISTS[2:]),),
    "log.jsonl": (("score", "log.jsonl"), ("score", "log.jsonl", "--json"), ("score", "log.jsonl", "-o", "scored")),
    "questions.jsonl": (("rag", "-d", "questions.jsonl", *ANSWERS), ("plan", "rag", "-d", "questions.jsonl"), ("prompts", "render", "rag", "-d", "questions.jsonl")),
    "labels.tsv": (("rag", "-d", "questions.jsonl", *ANSWERS, "--useful", "labels.tsv"),),
    "found.json": (("rag", "-d", "questions.jsonl", *ANSWERS, "--retriever", "found.json"),),
    "found.run": (("rag", "-d", "questions.jsonl", *ANSWERS, "--retriever", "found.run"),),
    **{
        f"lamp/{name}": (("rag", "-d", "lamp/4", "--data", "lamp", *ANSWERS),)
        for name in ("4_user_dev_inputs.json", "4_user_dev_outputs.json")
    },
    **{f"asked/{name}": (("rag", "-d", "asked", *ANSWERS), ("rag", "-d", "asked", *ANSWERS, "--useful", "qrels")) for name in ("docs.jsonl", "queries.tsv", "answers.jsonl", "qrels.txt")},
    **{f"adapter/{name}": (("listwise", "-m", "hf:model", "--adapter", "adapter", "--dry-run", *LISTS), ("report", "adapter")) for name in ("adapter_config.json", "llmfair.json")},
    "model/config.json": (("pairwise", "-m", "hf:model", *PAIRS, "--dry-run"), ("finetune-lora", "-m", "model", "--dry-run")),
}  # fmt: skip
"""The commands that read a file."""


def prepare(folder: Path) -> None:
    data = write_folder(folder / "data", balanced(2, 4, 4))
    shutil.copy(Path(__file__).parents[2] / "data" / "attributes.toml", data)
    lists = {q: [doc for doc, _, _ in rows] for q, rows in balanced(2, 4, 4).items()}
    run = [f"{q} Q0 {doc} {r} {9 - r} own" for q, docs in lists.items() for r, doc in enumerate(docs, 1)]
    write(data / "candidates.run", run)
    write(data / "keywords.jsonl", (json.dumps({"query_id": q, "keywords": ["topic", q]}) for q in lists))
    write(folder / "own.run", run)
    scores = {q: {doc: float(-rank) for rank, doc in enumerate(docs)} for q, docs in lists.items()}
    (folder / "own.json").write_text(json.dumps(scores))
    own = (f"{q},{d},{s}" for q, of in scores.items() for d, s in of.items())
    write(folder / "own.csv", ["q_id,doc_id,score", *own])
    _tables(folder)
    shutil.copy(Path(__file__).parents[2] / "prompts" / "listwise.toml", folder / "prompt.toml")
    (folder / "llmfair.toml").write_text(
        'seed = 3\nlabel = "mine"\n[listwise]\norders = 1\ndataset = "data"\n'
    )
    (folder / "target.json").write_text('{"female": 1, "male": 1}')
    write(folder / "ids.txt", ["q0", "q1"])
    write(folder / "log.jsonl", (json.dumps({"query_id": "q", "shown": ["a", "b"], "items": ["a", "b", "c"], "useful": ["a"], "output": "x", "gold": "x", "cited": ["b"]}) for _ in range(4)))  # fmt: skip
    items = [{"id": f"d{n}", "text": f"Item {n} of things", "label": "ab"[n % 2]} for n in range(6)]
    question = {"input": "Which?", "gold": "a", "items": items}
    write(folder / "questions.jsonl", (json.dumps({"id": q, **question}) for q in lists))
    labels = (f"{q}\td{n}\t{n % 2}" for q in lists for n in range(6))
    write(folder / "labels.tsv", ["qid\tpid\trelevance_label", *labels])
    (folder / "found.json").write_text(json.dumps({q: [[f"d{n}", 1.5 * n] for n in range(6)] for q in lists}))
    write(folder / "found.run", (f"{q} Q0 d{n} {n + 1} {9 - n} own" for q in lists for n in range(6)))
    write_lamp(folder / "lamp", 4)
    asked = write_folder(folder / "asked", balanced(2, 4, 4))
    write(asked / "answers.jsonl", (json.dumps({"query_id": q, "gold": "Title"}) for q in lists))
    for name in ("adapter", "model"):
        (folder / name).mkdir()
    (folder / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "model", "r": 1}')
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    (folder / "adapter" / "llmfair.json").write_text('{"schema": 1}')
    (folder / "model" / "config.json").write_text(
        '{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}'
    )


def _tables(folder: Path) -> None:
    rows = [
        {"query_id": q, "query": f"Topic {q}", "doc_id": doc, "title": f"Title {doc}", "relevance": grade, "gender": gender}
        for q, docs in balanced(2, 4, 4).items()
        for doc, gender, grade in docs
    ]  # fmt: skip
    for name, separator in (("table.csv", ","), ("table.tsv", "\t")):
        write(folder / name, [separator.join(rows[0]), *(separator.join(map(str, r.values())) for r in rows)])
    write(folder / "table.jsonl", map(json.dumps, rows))
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:  # an extra: without it a file of this form is refused
        (folder / "table.parquet").write_bytes(b"PAR1")
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "table.parquet")


def case(rng: random.Random, folder: Path, base: Path) -> Case:
    copy(base, folder, [path.name for path in base.iterdir() if path.is_dir() and path.name in COPIED])
    for path in base.iterdir():
        if path.is_file() and path.name != "llmfair.toml":
            shutil.copy(path, folder)
    name = rng.choice(sorted(READ))
    path = folder / name
    if name == "llmfair.toml":
        shutil.copy(base / name, path)
    change = rng.choice((*OWN, *[None] * 2 * len(OWN)))
    how = harm(rng, path) if change is None else change.__name__
    if change is not None:
        path.write_bytes(change(rng, path.read_bytes()))
    command = rng.choice(READ[name])
    return Case(command, f"{name}: {how}: {' '.join(command[:2])}")


COPIED = ("data", "lamp", "asked", "adapter", "model")


# What becomes of texts beside what becomes of all files


def evil(rng: random.Random, content: bytes) -> bytes:
    """Escape sequences in place of a word, in a JSON document by its own escapes."""
    words = content.split(b" ") if b" " in content else content.split(b'"')
    at = rng.randrange(len(words))
    text = rng.choice(
        (EVIL, json.dumps(EVIL)[1:-1], EVIL.replace("\x00", ""), "\x1b[2J", "\\u001b[2J", "=1+1", "<b>|*")
    )
    words[at] = rng.choice((text.encode(), words[at] + text.encode()))
    return (b" " if b" " in content else b'"').join(words)


def packed(rng: random.Random, content: bytes) -> bytes:
    return gzip.compress(content)[: rng.choice((None, None, 30, -5))]


def bomb(rng: random.Random, content: bytes) -> bytes:
    """A few kilobytes that unpack to 100 MB and more."""
    part = rng.choice((b"\n", b"0", content[:100], b"a b c d\n", b'{"a": 1}\n')) * 40_000
    return gzip.compress(part * max(1, (4 << 20) // len(part)), 9) * rng.choice((1, 8, 40))


def bottomless(rng: random.Random, content: bytes) -> bytes:
    """Nested deeper than parsers follow."""
    levels = rng.choice((30, 200, 2_000, 60_000))
    opened = rng.choice((b"[", b'{"a":', b'[{"a":', b"a.", b"x = [", b"x = {a = ", b"[a."))
    return rng.choice((b"", content)) + opened * levels + rng.choice((b"", b"1" + b"]" * levels))


def lengthy(rng: random.Random, content: bytes) -> bytes:
    """A line, number or text that does not end soon."""
    part = rng.choice((b"1", b"a", b" ", b"\t", b",", b'"', b"\xc3\xa4", b"9.", b"-", b"a b "))
    return (
        rng.choice((b"", content)) + part * rng.choice((5_000, 300_000, 3_000_000)) + rng.choice((b"", b"\n"))
    )


def other_ends(rng: random.Random, content: bytes) -> bytes:
    end = rng.choice((b"\r\n", b"\r", b"\x0b", b"\x85", "\u2028".encode(), b"\n\n", b"\0"))
    return rng.choice((b"", b"\xef\xbb\xbf", b"\xff\xfe")) + content.replace(b"\n", end)


def recoded(rng: random.Random, content: bytes) -> bytes:
    return content.decode("latin-1").encode(rng.choice(("utf-16", "utf-32", "utf-7")), "replace")


def swapped(rng: random.Random, content: bytes) -> bytes:
    """A number or text in place of another."""
    words = content.split(b" ") if content.count(b" ") > content.count(b"\t") else content.split(b"\t")
    mark = b" " if content.count(b" ") > content.count(b"\t") else b"\t"
    words[rng.randrange(len(words))] = rng.choice(
        (b"-1", b"nan", b"1e999", b"9" * 30, b"1_0", "٣".encode(), b"true", b"null", b"all", b"", b"../../x", b'"', b"[]", b"{}", b"@UNKNOWN", b"a\nb")
    )  # fmt: skip
    return mark.join(words)


OWN: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    evil, evil, packed, bomb, bottomless, lengthy, other_ends, recoded, swapped, swapped,
)  # fmt: skip
