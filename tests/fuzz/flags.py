"""Every flag of every command with values that it was not made for: huge, negative, no number, of another type, evil."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.cli.command import ran
from tests.folders import balanced, write_folder
from tests.fuzz.harms import EVIL, copy
from tests.fuzz.running import Case

AUDIT = ("-n", "1", "--no-cache")
BASE: Mapping[str, tuple[str, ...]] = {
    "listwise": (*AUDIT, "--orders", "1", "--passes", "1", "--no-repeat", "--conditions", "neutral"),
    "pairwise": (*AUDIT, "--pairs", "2"),
    "rag": (*AUDIT, "--samples", "2"),
    "refine": AUDIT,
    "study windows": (*AUDIT, "--orders", "1"),
    "calibrate listwise": (*AUDIT, "--runs", "2", "--orders", "1"),
    "calibrate pairwise": (*AUDIT, "--runs", "2", "--pairs", "2"),
    "score": ("run",),
    "rerank": ("run", "--with", "bm25"),
    "mitigate": ("run", "--dry-run"),
    "report": ("run",),
    "compare": ("run", "other"),
    "runs show": ("run",),
    "runs check": ("run",),
    "datasets show": ("data",),
    "datasets fetch": ("lamp/9",),
    "prompts show": ("listwise",),
}
"""What makes a command quick, before the flags under test."""
RUNS = ("run", "other")
NEVER = {*"--open --help --help-all -h --install-completion --show-completion --yes --verbose".split()}
"""What would open a browser, change the shell, fetch files, or show tracebacks as it is asked to."""
NUMBERS = (
    "0", "-0", "1", "-1", "2", "7", "0.5", "-0.5", "1e-320", "1e400", "-1e308", "nan", "inf", "-inf", "NaN", "0x10", "1_0",
    "٣", "½", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "9" * 25, "9" * 5_000, "1e9", "1" + "0" * 9, "1 ", "+1", "--1", "1,2", "1..2", "0..0", "1:2", "1%",
)  # fmt: skip
TEXTS = (
    "", " ", "\t", "\n", "a", "all", "@", "@UNKNOWN", "=1+1", "a=b", "=", "a=", "=b", ",", ",,,", ":", "::", "a:b:c", "*", "?",
    "-", "--", "..", "../..", "/", ".", "~", "$HOME", "`id`", "'", '"', "\\", "%s%n", "{}", "{0}", "{title}", "[", "(" * 300,
    "{" * 300, "[" * 5_000, "x" * 5_000, "x," * 3_000, "none", "None", "null", "true", "false", "NaN=1", EVIL, EVIL[:5], "\x1b]0;x\x07",
    "\u202egnp", "日本語", "😀", "\ud800", "\x00", "a\x00b", "ﬀ", "e\u0301", "\ufeff", "\x7f", "\x9b2J", "run", "data", "data/docs.jsonl",
    "pipe", "/dev/zero", "/dev/null", "/dev/stdin", "/proc/self/mem", "nowhere/at/all", "x" * 300 + ".toml", "@pipe", "@/dev/zero", "@data",
    "circle", "data.csv", "fake:", "fake:oracle", "fake:biased,noise=nan", "fake:biased,noise=1e999", "fake:biased,pairwise=" + "9" * 30,
    "fake:nobody,=,", "bm25", "deltr", "mmr", "mmr:2", "mmr:nan", "consensus", "neural:x", "P@0", "P@9" + "9" * 20, "P@-1", "P@1.5", "nDCG@",
    "nDCG(dcg=)@5", "nDCG(gains={})@5", "nDCG(gains={1:1e9})@5", "ExpRatio(agg=x)", "ExpRatio(", "AWRF(target=pipe)", "AWRF(target=/dev/zero)", "AWRF(target=data)",
    "RBP(p=2)", "RBP(p=nan)@5", "ERR@1", "ExpRatio=0..inf", "ExpRatio>=nan", "P@5>=" + "9" * 400, "neutral", "tournament:k=0",
    "partition", "pairwise", "letter", "retry:99999999999", "retry:-1", "retry:nan", "paper+nothing", "paper+", "0..", "..1", "nan..nan", "1e999s",
    "-5s", "10h", "nans", "infs", "disparity,disparity", "10,10,90,90", "0,0,0,0", "9999999999,1,1,1", "-1,1,1,1", "uniform", "harmonic",
    "api_key=\x1b[31m", "temperature=[[[", "messages={}", "stop=" + "[" * 300, "json", "md", "tsv", "table", "always", "svg,pdf,exe",
)  # fmt: skip


def prepare(folder: Path) -> None:
    write_folder(folder / "data", balanced(1, 2, 2))
    for name in RUNS:
        ran("listwise", "-d", "data", *BASE["listwise"], "-o", name, "--label", name)


@cache
def commands() -> Mapping[str, Sequence[Any]]:
    """The parameters of every command that does something, by its words."""
    from llmfair.cli.app import command

    def below(one: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Sequence[Any]]]:
        for name, other in getattr(one, "commands", {}).items():
            yield from below(other, (*words, name))
        if not hasattr(one, "commands"):
            yield " ".join(words), [item for item in one.params if item.param_type_name == "option"]

    return dict(below(command(), ()))


def case(rng: random.Random, folder: Path, base: Path) -> Case:
    copy(base, folder, ["data", *RUNS])
    os.mkfifo(folder / "pipe")
    (folder / "circle").symlink_to("circle")
    (folder / "data.csv").write_text("query_id,doc_id,title,gender\nq,a,A,female\nq,b,B,male\n")
    name = rng.choice(sorted(commands()))
    words, kinds = _flags(rng, name)
    return Case([*name.split(), *_without(BASE.get(name, ()), words), *words], f"{name} {' '.join(kinds)}")


def _flags(rng: random.Random, name: str) -> tuple[list[str], list[str]]:
    """Flags with values, and the names of the flags."""
    words: list[str] = []
    known = [item for item in commands()[name] if not {*item.opts} & NEVER]
    chosen = [rng.choice(known) for _ in range(rng.choice((1, 1, 1, 2, 3)))] if known else []
    for item in chosen:
        flag = rng.choice([*item.opts, *item.secondary_opts])
        if item.is_flag:
            words += [flag] if rng.random() < 0.9 else [f"{flag}={_value(rng, item)}"]
        elif rng.random() < 0.02:
            words.append(flag)
        else:
            value = _value(rng, item)
            words += [f"{flag}={value}"] if flag.startswith("--") and rng.random() < 0.5 else [flag, value]
    if rng.random() < 0.05:
        words.append(rng.choice(TEXTS))
    return words, [max(item.opts, key=len) for item in chosen]


def _value(rng: random.Random, item: Any) -> str:
    """Mostly of the kind that the flag takes."""
    numeric = "int" in (hint := str(item.type_descriptor.annotation)) or "float" in hint
    found = rng.choice(NUMBERS if numeric == (rng.random() < 0.85) else TEXTS)
    return rng.choice((found, found, found, f"{found},{rng.choice(TEXTS)}"))


def _without(line: Sequence[str], given: Sequence[str]) -> list[str]:
    """What makes a command quick, but for what is given otherwise."""
    flags = {word.partition("=")[0] for word in given}
    short = {"-n": "--limit"}
    kept: list[str] = []
    skip = False
    for word in line:
        if word.startswith("-"):
            skip = bool({word, short.get(word, word)} & flags)
            if not skip:
                kept.append(word)
        elif not skip:
            kept.append(word)
    return kept
