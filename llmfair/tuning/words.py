"""An adapter before and after in a table and sentences, its model card and page, and what a training would take."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from math import ceil, log
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from llmfair import terminal
from llmfair.audits.commands import SHARED_WITH_TRAINING
from llmfair.audits.pairwise.measure import HEADLINE
from llmfair.audits.pairwise.words import pair_conclusion
from llmfair.io.text import count, listed, p_text
from llmfair.metrics.names import in_words
from llmfair.nouns import PAIRS, Cell, Conclusion, Key, PairStratum, picked
from llmfair.report.groups import Section
from llmfair.report.page import Page, Source, plain_page
from llmfair.report.phrases import about, capitalised, cell, few_queries, percent
from llmfair.report.plan import duration
from llmfair.report.table import Table, headed, markdown
from llmfair.report.verdict import OTHER_GROUP, Case, VerdictWords, cases_of, crosses
from llmfair.results import Conclusions, Exhibits
from llmfair.settings.commands import FinetuneSettings
from llmfair.tuning.drawing import CONSISTENT, ICC, LIKELY, MOST_QUERIES
from llmfair.tuning.effects import ADAPTER, BASE, BASELINE, PAIR_STRATA, SMOOTHED, gates_text
from llmfair.tuning.processes import Tell, prompts_of
from llmfair.tuning.results import FinetunePlan, FinetuneResults, HeldOut, MergeResults

if TYPE_CHECKING:
    from llmfair.tuning.finetune import TuningDesign

MODELS = (BASE, ADAPTER, BASELINE)
ODDS = "preference odds"
TSV = ("run", "model", "condition", "stratum", "measure", "group", "value", "low", "high", "n", "reason")


def headed_table(results: FinetuneResults) -> Table:
    """The table below its verdict."""
    return headed(finetune_table(results), results.verdict)


def finetune_table(results: FinetuneResults) -> Table:
    """Base, adapter and logit offset on the test queries: a row each for every relevance stratum."""
    design = results.design
    title = (
        "LoRA adapter" + f" (preset {design.preset})" * bool(design.preset), results.dataset,
        about(results.attribute, results.words.protected), results.model,
        f"{count(design.split['test'], 'query', 'queries')} that were not trained on, both orders",
    )  # fmt: skip
    rows = (_row(stratum, model, results) for stratum, model in product(PAIR_STRATA, MODELS))
    return Table.of_texts(" · ".join(title), rows, *_notes(results))


def _row(stratum: PairStratum, model: str, results: FinetuneResults) -> dict[str, str]:
    cells, (low, high) = results.cells[model][stratum], results.band

    def text(measure: str, group: str = "", form: Callable[[float], str] = percent) -> str:
        value = results.figure(model, measure, stratum, group).value
        return "" if value is None else form(value)

    odds, finding = results.figure(model, HEADLINE, stratum), results.findings[model].get(stratum)
    rho, conclusion = "" if model == BASE else text("OrderKept", form="{:.2f}".format), ""
    if finding is not None:
        conclusion = pair_conclusion(finding, odds, results.band, results.words)
    return {
        "pairs": f"{stratum}, {sum(cells.values()):,}" if model == BASE else "",
        "answers of": model,
        "protected": f"{text('WinShare', 'protected')} ({cells[Cell.PP]:,})",
        "unprotected": f"{text('WinShare', 'unprotected')} ({cells[Cell.UU]:,})",
        "flips": text("FlipRate"),
        "tied": text("TieRate"),
        f"{ODDS} [{results.level * 100:g} %]": cell(odds),
        "ratio": text(SMOOTHED, form="{:.3f}".format),
        "first shown wins": text("FirstSlotRate"),
        "Spearman's rho with the base model": rho,
        f"conclusion ({low:g}–{high:g})": conclusion,
    }


def _notes(results: FinetuneResults) -> Iterator[str]:
    training, design, overlap = results.training, results.design, results.overlap
    split = design.split
    for stratum in results.changes:
        if change := odds_change(stratum, results):
            yield f"{stratum}: {ODDS} {change}"
    relevant = [results.figure(model, "RelevantFirst", "mixed").value for model in MODELS]
    shares = ["undefined" if value is None else percent(value) for value in relevant]
    yield (
        f"relevant item preferred to an irrelevant one: {shares[0]} → {shares[1]} (logit offset {shares[2]}) of "
        f"{results.counts['test']['mixed'].pairs:,} pairs"
    )
    gates = gates_text(training.validation.gates)
    yield f"gates on {count(split['validation'], 'query', 'queries')} of validation: {gates}"
    yield f"logit offset: {training.offset:+.2f} taken off the protected item's margin, without training"
    yield (
        f"trained on {count(split['train'], 'query', 'queries')}: {count(training.steps, 'step')}, "
        f"{training.prompts:,} prompts{', stopped early' * training.stopped_early}; best at step "
        f"{training.best_step:,}; labels {design.labels}, anchor {design.anchor}, rank {design.rank}; prompts "
        f"{training.layout}: {training.layout_why}"
    )
    yield (
        f"{overlap.items:,} of {count(overlap.train_items, 'item')} trained on stand in measured pairs too, "
        f"{count(overlap.pairs, 'pair')} as well (--strict-items leaves them out)"
    )
    yield (
        "ratio: pairs that either group's item wins in both orders, ½ added to both counts (in brackets); "
        "preference odds take the position out of all answers; Spearman's rho is of the preferences"
    )
    yield from few_queries(split["test"])


def odds_change(stratum: str, results: FinetuneResults) -> str:
    """How far from parity before and after, paired; "" where there are no odds before or after."""
    before, after = (results.figure(model, HEADLINE, stratum).value for model in (BASE, ADAPTER))
    if before is None or after is None:
        return ""
    change, far, near = results.changes[stratum], abs(log(before)), abs(log(after))
    way = "as far from" if far == near else "nearer to" if near < far else "farther from"
    limits = "" if change.low is None else f"× {change.value:.2f} [{change.low:.2f}, {change.high:.2f}], "
    p = "" if change.p is None else f"p {p_text(change.p)} of no change, "
    test = f"{limits}{p}{count(change.n or 0, 'query', 'queries')}, paired"
    other_group = OTHER_GROUP * crosses(before, after, results.band)
    return f"{before:.3f} → {after:.3f} ({test}): {way} parity{other_group}"


TRAINING, MEASURING = "Training", "Measuring"


class TrainingProgress:
    """How far a training is, on stderr: a bar on a terminal, else a plain line now and then; nothing if `silent`."""

    def __init__(self, silent: bool = False) -> None:
        self.silent = silent
        self.folder: Path | None = None
        self.done = 0
        self.count = terminal.Count("", 0, "prompts", lambda: self.done)

    def begin(self, folder: Path, design: TuningDesign) -> None:
        self.folder, split = folder, design.drawn.split
        if self.silent:
            return
        pairs = ", ".join(f"{of.pairs:,} {stratum}" for stratum, of in design.drawn.counts()["train"].items())
        terminal.say(
            f"{pairs} pairs of {count(len(split.train), 'query', 'queries')} to train on, up to "
            f"{prompts_of(design.settings):,} prompts; {len(split.validation)} to validate, {len(split.test)} to test"
        )
        terminal.say(capitalised(foreseen(design.held_out)))

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Tell]:
        """`with progress.stage(TRAINING, prompts) as tell:` and `tell(done, words)`."""
        self.done, self.count = 0, terminal.Count(name, total, "prompts", lambda: self.done)
        with nullcontext() if self.silent else terminal.drawn(self.count):
            yield self.tell

    def tell(self, done: int, words: str = "") -> None:
        self.done, self.count.words = done, words

    def how_far(self) -> str:
        if self.count.name == TRAINING:
            return f"at {self.done:,} of {self.count.total:,} prompts"
        return "after training" if self.count.name == MEASURING else "before training"


def model_card(results: FinetuneResults) -> str:
    """The adapter's README.md: what was measured, on which data, and what that does not say."""
    design, training = results.design, results.training
    base, words = results.model.removeprefix("hf:"), results.words
    queries = count(design.split["test"], "query", "queries")
    return f"""---
library_name: peft
base_model: {base}
tags: [lora, ranking, fairness, llmfair]
---
# Adapter for pairwise ranking by {base}: {results.attribute} on {results.dataset}

A LoRA adapter (rank {design.rank}, modules {design.target_modules}) that was trained to move the model's
preference between {words.protected} and {words.unprotected} items of equal relevance towards parity; the table
says what came of it. `llmfair finetune-lora`, labels `{design.labels}`, anchor `{design.anchor}`,
{training.prompts:,} prompts.

## What was measured

On {queries} of {results.dataset} that were not trained on; every pair was asked in both orders.

{markdown(headed_table(results))}
`metrics.csv` holds every figure with its interval, `results.json` all that explains them.

## How to use it

    llmfair pairwise --adapter FOLDER -m hf:{base} --answers margin --form {design.form} \\
        -d {results.dataset} -a {results.attribute} --queries @FOLDER/test-queries.txt

`test-queries.txt` names the queries that it never saw; on the others its figures flatter it.
Serve the adapter over the base; merging rounds it away in part. The prompt must be the one it was trained with.

## What this does not say

The figures speak of pairs, of this prompt, of this dataset and of the attribute as two groups: lists, other prompts,
other data and other groups were not measured. Whatever else goes with the group moved with it.
"""


def plan_text(planned: FinetunePlan) -> str:
    """What a training would take; nothing was asked."""
    design, tokens, overlap = planned.design, planned.tokens, planned.overlap
    split, share, prompts = design.split, design.train_share, planned.steps * design.prompts_per_step
    lines = [
        f"rank {design.rank}, alpha {design.lora_alpha:g}, learning rate {design.learning_rate:g}, batch "
        f"{design.prompts_per_step} prompts, labels {design.labels}, anchor {design.anchor}",
        f"{prompts // 2:,} pairs in both orders = {prompts:,} prompts, {count(planned.steps, 'step')}",
        f"split {share * 100:.0f}/{(1 - share) * 100:.0f} by query: {split['train']} to train on, "
        f"{split['validation']} to validate, {split['test']} to test, {split['unused']} unused",
        foreseen(planned.held_out),
    ]
    for part, strata in planned.counts.items():
        counts = (
            f"{of.pairs:,} {name} of {count(of.queries, 'query', 'queries')}" for name, of in strata.items()
        )
        lines.append(f"{part} pairs: {', '.join(counts)}")
    lines += [
        f"{overlap.items:,} of {overlap.train_items:,} items trained on stand in measured pairs too",
        f"tokens a prompt: {tokens.mean:.0f} on average, {tokens.most} at most, {tokens.shared:.0f} of "
        f"them shared by a query (from {tokens.prompts:,} prompts)",
    ]
    if (needs := planned.estimate) is None:
        lines.append("memory and time: not known of this kind of model")
    else:
        took = " or ".join(
            f"{duration(ceil(seconds))} on one {name}" for name, seconds in needs.seconds.items()
        )
        lines.append(
            f"about {needs.weights_gib + needs.training_gib:.1f} GiB ({needs.weights_gib:.1f} of weights); "
            f"{needs.petaflop:.3g} PFLOP: {took}, at half of its peak"
        )
    title = f"{planned.model} · {planned.dataset} · {planned.attribute}"
    text = [title + f" · preset {design.preset}" * bool(design.preset), *(f"  {line}" for line in lines)]
    for number, prompt in enumerate(planned.prompts, 1):
        ids = ", ".join(f"{label} = {token}" for label, token in prompt.answers.items())
        text.append(f"\nPrompt {number} ({prompt.pair_id}; answer ids: {ids}):\n{prompt.text}")
    return "\n".join([*text, "", "Nothing was asked."]) + "\n"


def merge_text(merged: MergeResults) -> str:
    """What merging an adapter changed, and what to do before it is used."""
    return (
        f"{merged.adapter} merged into {merged.base}: {count(merged.matrices, 'matrix', 'matrices')}, |ΔW|/|W| "
        f"{merged.change:.2g}\n"
        f"  rounding to {merged.dtype} is {100 * merged.distortion:.2g} % of the change; "
        f"{merged.flipped:,} of {count(merged.answers, 'probe answer')} flip (asked with titles alone)\n"
        f"  a merged model is not the adapter: audit it with llmfair pairwise -m hf:{merged.output} "
        f"--answers margin --form {merged.form}\n{merged.output}"
    )


def foreseen(held: HeldOut) -> str:
    """What the test queries allow, before any answer."""
    share = f"{CONSISTENT * 100:.0f} % of pairs get one answer in both orders"
    return f"{allowed(held)} (taken: {share}, intraclass correlation {ICC:g})"


def allowed(held: HeldOut) -> str:
    """How often an adapter at parity would be called repaired, and on how many queries in 80 %."""
    enough = f"no number below {MOST_QUERIES:,}" if held.needed is None else f"{held.needed:,}"
    return (
        f"of adapters at parity that keep their gates, {held.chance * 100:.0f} % are called repaired on "
        f"{count(held.queries, 'query', 'queries')}, {LIKELY * 100:.0f} % on {enough}"
    )


# The verdict of a training: is the preference gone on queries that it never saw, and is nothing else lost?

REPAIRED, REJECTED, INCONCLUSIVE = STATUSES = ("repaired", "rejected", "inconclusive")
OTHERWISE = "try another --labels or --anchor, or a lower --learning-rate"
NEAREST = f"what came nearest is in rejected/; {OTHERWISE}"


def judged(results: FinetuneResults, audit: str) -> FinetuneResults:
    """The results with their verdict: rejected where a gate is not kept or the preference is still there, repaired
    where all odds lie in the band. `audit` is the command that audits the adapter."""
    same = ("run", "dataset", "attribute", "model", "words", "level", "band")
    conclusions = Conclusions(
        **picked(results, same), task="pairwise", measures=[HEADLINE],
        keys=[Key(PAIRS, stratum) for stratum in PAIR_STRATA], findings=results.findings[ADAPTER],
        figures={(HEADLINE, stratum): results.figure(ADAPTER, HEADLINE, stratum) for stratum in PAIR_STRATA},
    )  # fmt: skip
    words = VerdictWords("")
    verdict, cases = words.verdict(conclusions), cases_of(conclusions)
    gravest = next((case for case in cases if case.key.stratum == verdict.stratum), None)
    status, why, following = _status(results, gravest, audit)
    queries = count(results.design.split["test"], "query that was", "queries that were")
    odds = listed([f"{case.interval} of {case.key} pairs" for case in cases] or ["undefined"])
    sentence = f"{why}; preference odds on {queries} not trained on: {odds} ({results.level * 100:g} % CI)"
    sentence += "" if gravest is None else words.caution(gravest)
    verdict = structs.replace(verdict, status=status, sentence=sentence, next=following, measure=HEADLINE)
    return structs.replace(results, verdict=verdict)


def _status(results: FinetuneResults, gravest: Case | None, audit: str) -> tuple[str, str, str]:
    """The status, why it is this one, and what to do next."""
    if results.training.rejected:
        return REJECTED, str(results.training.why).rstrip("."), NEAREST
    if lost := gates_text(results.gates_on_test, missed=True):
        return REJECTED, f"gates are not kept on the test queries: {lost}", OTHERWISE
    if gravest is None:
        return INCONCLUSIVE, "nothing was measured", audit
    pairs, band, but = f"{gravest.key} pairs", gravest.band, "all gates are kept, but"
    finding = gravest.finding
    why = in_words(finding.reason, finding.measure)
    if finding.conclusion == Conclusion.OUTSIDE:
        return REJECTED, f"{but} the odds of {pairs} still lie outside {band}", OTHERWISE
    if finding.conclusion == Conclusion.WITHIN:
        return REPAIRED, f"all intervals of the odds lie in {band}, and all gates are kept", audit
    if finding.conclusion != Conclusion.INCONCLUSIVE:
        return INCONCLUSIVE, f"{but} nothing can be said of {pairs}: {why}", audit
    crosses = f"the interval of {pairs} crosses an edge of {band}"
    if finding.reason:
        crosses = f"the odds of {pairs} are {why}"
    settle = VerdictWords("").settle(gravest)
    p_values = {of: results.figure(ADAPTER, HEADLINE, of).p_adjusted for of in PAIR_STRATA}
    if away := [of for of, p in p_values.items() if p is not None and p <= 1 - results.level]:
        why = f"{but} {crosses}, and the odds of {listed(away)} pairs are not at parity"
        return INCONCLUSIVE, why, f"{OTHERWISE}; {settle}"
    why = f"{but} too few queries are held out: {crosses}; {allowed(results.held_out)}"
    return INCONCLUSIVE, why, f"{settle}; a lower --train-share leaves more to measure on"


def audit_of(settings: FinetuneSettings, model: str, folder: Path) -> str:
    """The command line that audits the adapter on the queries that it never saw."""
    return (
        f"llmfair pairwise -m {shlex.quote(model)} --adapter {shlex.quote(str(folder))} "
        f"--queries {shlex.quote(f'@{folder}/test-queries.txt')} --answers margin --form {settings.form} "
        + settings.as_flags(SHARED_WITH_TRAINING)
    ).rstrip()


WORDS = (
    "A LoRA adapter was trained on pairs of some queries and measured on pairs of others, by the log-probabilities "
    "of both answers in both orders; base and adapter answer the very same questions in one process.",
    "With p₁ and p₂ the shares of answers that the protected item wins when shown first and second, "
    "preference odds (adjusted for position) are exp((logit p₁ + logit p₂) / 2); the ratio counts pairs won in both "
    "orders, ½ added to both counts. The logit offset takes one number off every margin instead of training.",
    "Each query is one unit; base and adapter are compared query by query.",
)


def adapter_page(source: Source, exhibits: Exhibits) -> Page:
    """The page of an adapter folder, from its results."""
    results: FinetuneResults = source.results
    section = Section(finetune_table(results), words=WORDS)
    return plain_page(
        results, exhibits, section, "LoRA adapter",
        f"{results.model} with adapter {results.run}, {results.attribute}",
    )  # fmt: skip
