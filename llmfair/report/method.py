"""How figures came about: in words, in formulas, in settings; and what they cannot say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmfair.audits.listwise.table import window_text
from llmfair.audits.results import found_of
from llmfair.report.tables import calls_of, capitalised, count

WORDS: Mapping[str, Sequence[str]] = {
    "listwise": (
        "The model orders every candidate list under a neutral prompt and under prompts that name each side. A "
        "window slides from the end of the list to its head; what the model puts first in one window is carried "
        "into the next.",
        "Exposure of the item at rank a is 1 / ln(1 + a): the head weighs most. Each side's exposure is the mean "
        "over its items; the ratio of the protected side's to the other's is 1 at parity, wherever relevance is "
        "spread alike.",
        "Conclusions speak of pair odds: those with which a protected item beats an equally relevant other one, "
        "read off simulated rankers with planted odds on lists of the same sizes with the same windows.",
        "Each query is one unit: intervals and tests go over queries. p is adjusted (Holm) over the family that "
        "the notes below the table name.",
    ),
    "pairwise": (
        "The model is shown one protected and one unprotected item of a query, equally relevant, and asked which "
        "is the more relevant; then the same two in the other order. An answer that changes with the order is a "
        "flip.",
        "With p₁ and p₂ the shares of answers that the protected item wins when shown first and second, position-"
        "adjusted odds are exp((logit p₁ + logit p₂) / 2): 1 at parity, with the pull of the position taken out.",
        "Of the pairs answered alike in both orders, PP went to the protected item and UU to the other; FF and SS"
        " are flips to the item shown first and second.",
        "Each query is one unit, and items that recur in several pairs are taken into account. p is adjusted "
        "(Holm) over the kinds of pairs.",
    ),
    "score": (
        "Rankings that exist, measured as they stand, in the order trec_eval reads them; no model was asked.",
        "Exposure of the item at rank a is 1 / ln(1 + a). Each side's exposure is the mean over its items; the "
        "ratio of the protected side's to the other's is 1 at parity, wherever relevance is spread alike.",
    ),
    "finetune-lora": (
        "A LoRA adapter was trained on pairs of some queries and measured on pairs of others, by the log-probabilities "
        "of both answers in both orders; base and adapter answer the very same questions in one process.",
        "With p₁ and p₂ the shares of answers that the protected item wins when shown first and second, "
        "position-adjusted odds are exp((logit p₁ + logit p₂) / 2); the ratio counts pairs won in both orders, ½ added "
        "to both counts. The free baseline takes one number off every margin instead of training.",
        "Each query is one unit; base and adapter are compared query by query.",
    ),
    "study windows": (
        "The same model orders the same lists under several windows and steps; each setting is a run of its own.",
        "What a ratio can be at all depends on the windows: the grey bars show what rankers that always put one "
        "side first would read. A ratio near 1 in a setting that can read little else says little.",
    ),
}
LIMITS = (
    "The attribute is binary here: items with groups on neither side, or on both, are left out of the ratios. "
    "Groups are what the data set records, not what people say of themselves.",
    "A distance from parity is a fact about these lists, prompts and answers. It names no cause, and passes no "
    "judgement.",
)
LOPSIDED = (
    "With few queries or short lists the interval of an exposure ratio is a bootstrap-t interval over queries: it is "
    "not symmetric, but reaches further to the side where single queries lie far out."
)
TITLES_ONLY = "The model saw titles only: it judged by names and by what it remembers of them."
SIMULATED = (
    "The model is simulated: its figures show what was planted, not how any model of the world behaves."
)


@dataclass(frozen=True)
class Method:
    """What stands under Method; `again`: what the command does once more.

    `words` in paragraphs, `formulas` as (name, label, what it is), `facts` as (name, value), the rest as it is.
    """

    words: Sequence[str]
    formulas: Sequence[tuple[str, str, str]]
    facts: Sequence[tuple[str, str]]
    prompt: str
    command: str
    limits: Sequence[str]
    again: str = "asks"


def method_of(results: Mapping[str, Any], manifest: Mapping[str, Any], exhibits: Mapping[str, Any]) -> Method:
    """The method of a run, or of a page of several."""
    task, settings, design = results["task"], manifest.get("settings", {}), results.get("design", {})
    limits = list(LIMITS)
    if settings.get("input") == "title":
        limits.append(TITLES_ONLY)
    if str(results.get("model", "")).startswith("fake:"):
        limits.append(SIMULATED)
    words = WORDS[task][1:] if task == "listwise" and design.get("window") is None else WORDS[task]
    return Method(
        words=[*words, *lopsided([results])],
        formulas=formulas_of(exhibits["measures"]),
        facts=[(name, str(value)) for name, value in _facts(results, design, manifest, settings) if value],
        prompt=manifest.get("prompt", {}).get("text", ""),
        command=exhibits.get("command") or "",
        limits=limits,
        again="measures" if task == "score" else "asks",
    )


def lopsided(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why some intervals of these results reach further on one side of the figure, where some may."""
    return [LOPSIDED] * any(
        "boot-t" in results.get("intervals", {}).values()
        or any(run.get("task") == "listwise" for run in results.get("runs", ()))  # measured runs
        for results in found
    )


def cost_of(manifest: Mapping[str, Any]) -> str:
    """What all commands on a run have cost, and the calls of them that were made without prices."""
    if manifest.get("cost") is None:
        return ""
    past = manifest["invocations"]
    unpriced = sum(one.get("calls", 0) for one in past if one.get("cost") is None)
    return f"{manifest['cost']:,.4f}" + f", and {count(unpriced, 'call')} made without prices" * bool(
        unpriced
    )


def formulas_of(measures: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Name, label and definition of every measure, as it declares them."""
    return [
        (
            name,
            says["label"],
            f"{says['says'].rstrip('.')}. {capitalised(says['cite'])}" if says["says"] and says["cite"]
            else says["says"] or says["cite"],
        )
        for name, says in measures.items()
    ]  # fmt: skip


def _facts(
    results: Mapping[str, Any],
    design: Mapping[str, Any],
    manifest: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> list[tuple[str, Any]]:
    words, versions = results.get("words", {}), manifest.get("versions", results.get("versions", {}))
    sides = f"{words.get('protected')} (protected), {words.get('unprotected')}" if words else ""
    facts: list[tuple[str, Any]] = [
        ("run", results.get("run")),
        *(_measured(results) if results["task"] == "score" else ()),
        ("data set", results.get("dataset")),
        ("attribute", f"{results['attribute']}: {sides}" if results.get("attribute") else ""),
        ("model", results.get("model")),
        ("reported as", ", ".join(manifest.get("models_reported", ()))),
        ("queries", design.get("queries", results.get("queries"))),
    ]
    if "window" in design and design["prompt_sha256"] is not None:
        facts += [
            ("windows", window_text(found_of(results).design)),
            (
                "initial orders",
                f"{count(design['orders'], design['initial'] + ' order')}, {count(design['repeats'], 'repeat')}",
            ),
        ]
    if "pairs_asked" in design:
        facts.append(("pairs", ", ".join(f"{n:,} {kind}" for kind, n in design["pairs_asked"].items())))
    prompt = manifest.get("prompt", {})
    facts += [
        ("calls", calls_of(found_of(results)) if design.get("calls") else ""),
        ("cost", cost_of(manifest)),
        ("temperature", str(settings["temperature"]) if "temperature" in settings else ""),
        ("seed", str(design.get("seed", results.get("seed", settings.get("seed", ""))))),
        ("interval level", f"{100 * results['level']:g} %" if "level" in results else ""),
        ("band of conclusions", "{:g} to {:g}".format(*results["band"]) if "band" in results else ""),
        ("prompt", f"{prompt['file']}, SHA-256 {prompt['sha256']}" if prompt else ""),
        ("lists, SHA-256", settings.get("lists_sha256")),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    return facts


def _measured(results: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Of rankings that exist: which ones, and what they were measured against, as the user named them."""
    named, runs = results.get("settings", {}), results["runs"]
    whom = (
        f"{run['attribute']}: {run['words']['protected']} (protected), {run['words']['unprotected']}"
        for run in runs
    )
    return [
        ("runs", ", ".join(named.get("runs", ()))),
        ("data set", "" if "qrels" in named else ", ".join(dict.fromkeys(run["dataset"] for run in runs))),
        *((name, named.get(name, "")) for name in ("qrels", "groups", "attributes")),
        ("attribute", ", ".join(dict.fromkeys(whom))),
        ("model", ", ".join(dict.fromkeys(run["model"] for run in runs))),
    ]
