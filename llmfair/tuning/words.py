"""An adapter before and after in a table and sentences, its model card, and what a training would take."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from math import log
from pathlib import Path

from msgspec import structs
from msgspec.structs import asdict

from llmfair.audits.commands import SHARED_WITH_TRAINING
from llmfair.audits.pairwise.measure import HEADLINE
from llmfair.audits.pairwise.words import pair_conclusion
from llmfair.audits.verdict import Case, Conclusions, VerdictWords, listed
from llmfair.io.files import plain
from llmfair.nouns import Conclusion, PairStratum
from llmfair.report.exhibits import Exhibits
from llmfair.report.figures import on_log, value_of
from llmfair.report.page import General, Page, Source, plain_page
from llmfair.report.plots.base import Plot
from llmfair.report.plots.ratios import Value, position_bias, ratios, stacked_answers
from llmfair.report.section import Section, VerdictCard, verdict
from llmfair.report.tables import (
    Table,
    capitalised,
    cell,
    count,
    few_queries,
    headed,
    in_words,
    markdown,
    p_text,
    tsv,
)
from llmfair.results import Figure, Row, RunVerdict, absent_row
from llmfair.settings import FinetuneSettings
from llmfair.tuning.effects import ADAPTER, BASE, BASELINE, PAIR_STRATA, SMOOTHED, missed
from llmfair.tuning.results import (
    AnswersOnPairs,
    FinetunePlan,
    FinetuneResults,
    MergeResults,
    PairCounts,
    TuningFacts,
)

Rows = Mapping[tuple[str, str, str, str], Row]
"""By model, measure, relevance stratum, and group."""
MODELS = (BASE, ADAPTER, BASELINE)
ODDS = "preference odds"
NOTHING = Figure(None, None, None, None, None, None, None, "no_pairs")
TSV = ("run", "model", "condition", "measure", "group", "value", "low", "high", "n", "reason")


def headed_table(results: FinetuneResults) -> Table:
    """The table below its verdict."""
    return headed(finetune_table(results), results.verdict)


def finetune_table(results: FinetuneResults) -> Table:
    """Base, adapter and free baseline on the test queries: a row each for every relevance stratum."""
    rows, (low, high), design = _rows(results), results.band, results.design
    header = (
        "pairs",
        "answers of",
        "protected",
        "unprotected",
        "flips",
        "tied",
        f"{ODDS} [{results.level * 100:g} %]",
        "ratio",
        "first shown wins",
        "Spearman's rho with the base model",
        f"conclusion ({low:g}–{high:g})",
    )
    lines = [_line(stratum, model, results, rows) for stratum in PAIR_STRATA for model in MODELS]
    parts = [
        "LoRA adapter" + f" (preset {design.preset})" * bool(design.preset),
        results.dataset,
        f"{results.attribute} (protected: {results.words.protected})",
        results.model,
        f"{count(design.split['test'], 'query', 'queries')} that were not trained on, both orders",
    ]
    return Table(" · ".join(parts), header, tuple(lines), tuple(_notes(results, rows)))


def finetune_tsv(results: FinetuneResults) -> str:
    """The figures for programs: one a line, undefined ones empty."""
    return tsv(TSV, map(plain, results.rows))


def _rows(results: FinetuneResults) -> Rows:
    return {(row.model, row.measure, row.condition, row.group): row for row in results.rows}


def _line(stratum: PairStratum, model: str, results: FinetuneResults, rows: Rows) -> tuple[str, ...]:
    cells, pairs = results.cells[model][stratum], results.figure_4[stratum]["before"].pairs

    def share(measure: str, group: str = "") -> str:
        value = rows.get((model, measure, stratum, group), NOTHING).value
        return "" if value is None else f"{100 * value:.1f} %"

    ratio = rows.get((model, SMOOTHED, stratum, ""), NOTHING).value
    order = rows.get((model, "OrderKept", stratum, ""), NOTHING).value
    odds = rows.get((model, HEADLINE, stratum, ""), NOTHING)
    finding = results.findings[model].get(stratum)
    return (
        f"{stratum}, {pairs:,}" if model == BASE else "",
        model,
        f"{share('WinShare', 'protected')} ({cells.PP:,})",
        f"{share('WinShare', 'unprotected')} ({cells.UU:,})",
        share("FlipRate"),
        share("TieRate"),
        cell(odds),
        "" if ratio is None else f"{ratio:.3f}",
        share("FirstSlotRate"),
        "" if order is None or model == BASE else f"{order:.2f}",
        "" if finding is None else pair_conclusion(finding, odds, results.level, results.band, results.words),
    )


def _notes(results: FinetuneResults, rows: Rows) -> Iterator[str]:
    training, design, overlap = results.training, results.design, results.overlap
    split = design.split
    if lost := missed_on_test(results):
        yield lost
    for stratum in PAIR_STRATA:
        if stratum in results.changes:
            change = odds_change(stratum, results, rows)
            yield f"{stratum}: {ODDS} {change}" if change else f"{stratum}: no odds before or after"
    relevant = [rows.get((model, "RelevantFirst", "mixed", ""), NOTHING).value for model in MODELS]
    shares = ["undefined" if value is None else f"{100 * value:.1f} %" for value in relevant]
    yield (
        f"relevant item preferred to an irrelevant one: {shares[0]} → {shares[1]} (logit offset {shares[2]}) of "
        f"{results.counts['test']['mixed'].pairs:,} pairs"
    )
    gates = [str(gate.text) for gate in training.validation.gates.values() if gate.limit is not None]
    yield f"gates on {count(split['validation'], 'query', 'queries')} of validation: {', '.join(gates)}"
    yield (
        f"logit offset: no training, {training.offset:+.2f} taken off the protected item's margin; it needs every "
        "item's group when a model is asked, the adapter does not"
    )
    yield (
        f"trained on {count(split['train'], 'query', 'queries')}: {count(training.steps, 'step')}, "
        f"{training.prompts:,} prompts{', stopped early' * training.stopped_early}; best at step "
        f"{training.best_step:,}; labels {design.labels}, anchor {design.anchor}, rank {design.rank}, "
        f"{count(training.modules, 'module')}; prompts {training.layout}: {training.layout_why}"
    )
    if overlap.strict:
        yield f"no item of a measured pair was trained on ({overlap.dropped_items:,} left out)"
    else:
        yield (
            f"{overlap.items:,} of {count(overlap.train_items, 'item')} trained on stand in measured pairs too, "
            f"{count(overlap.pairs, 'pair')} as well (--strict-items leaves them out)"
        )
    yield (
        "ratio: pairs that either group's item wins in both orders, ½ added to both counts (in brackets); "
        "preference odds (adjusted for position) take the position out of all answers; Spearman's rho is of the "
        "preferences"
    )
    yield from few_queries(split["test"])


def odds_change(stratum: str, results: FinetuneResults, rows: Rows) -> str:
    """How far from parity before and after, paired; nothing where there are no odds before or after."""
    change = results.changes[stratum]
    before, after = (rows.get((model, HEADLINE, stratum, ""), NOTHING).value for model in MODELS[:2])
    if before is None or after is None:
        return ""
    far, near = abs(log(before)), abs(log(after))
    way = "as far from parity" if far == near else "nearer to parity" if near < far else "farther from parity"
    text = f"{before:.3f} → {after:.3f} ("
    if change.low is not None:
        text += f"× {change.value:.2f} [{change.low:.2f}, {change.high:.2f}], "
    if change.p is not None:
        text += f"p {p_text(change.p)} of no change, "
    queries = count(change.n, "query", "queries")
    return f"{text}{queries}, paired): {way} (distance in log odds {far:.2f} → {near:.2f})"


def missed_on_test(results: FinetuneResults) -> str:
    """What the adapter does not keep on queries it never saw; nothing where it keeps all."""
    gates = missed(results.gates_on_test)
    return f"not kept on the test queries: {gates}" if gates else ""


def labelled_text(counts: Mapping[str, int]) -> str:
    """Said when every pair has its target."""
    told = ", ".join(f"{number:,} {stratum}" for stratum, number in counts.items())
    return f"{told} pairs count in training; the labels leave the others out"


def before_text(design: TuningFacts, counts: Mapping[str, PairCounts]) -> str:
    """Said before the first question; `counts` of pairs to train on, by stratum."""
    pairs = ", ".join(f"{of_it.pairs:,} {stratum}" for stratum, of_it in counts.items())
    return (
        f"{pairs} pairs of {count(design.split['train'], 'query', 'queries')} to train on, up to "
        f"{design.prompts:,} prompts; {design.split['validation']} to validate, "
        f"{design.split['test']} to test"
    )


# The model card


def model_card(results: FinetuneResults) -> str:
    """The adapter's README.md: what was measured, on which data, and what that does not say."""
    design, training = results.design, results.training
    base, words = results.model.removeprefix("hf:"), results.words
    queries = count(design.split["test"], "query", "queries")
    rejected = "" if results.status == "complete" else f"\n**Rejected.** {training.why}\n"
    if lost := missed_on_test(results):
        rejected += f"\n**{capitalised(lost)}.**\n"
    return f"""---
library_name: peft
base_model: {base}
tags: [lora, ranking, fairness, llmfair]
---
# Adapter for pairwise ranking by {base}: {results.attribute} on {results.dataset}
{rejected}
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

- The figures speak of pairs, of this prompt, of this dataset and of the attribute as two groups. Lists, other prompts,
  other data and other groups were not measured.
- A distance from parity is no judgement on a single ranking, and parity on {queries} leaves the intervals above.
- The adapter knows nothing of why items of one group were preferred; whatever else goes with the group moved with it.
"""


# A dry run


def plan_text(planned: FinetunePlan) -> str:
    """What a training would take; nothing was asked."""
    design, counts, tokens, overlap = planned.design, planned.counts, planned.tokens, planned.overlap
    split, share = design.split, design.train_share
    different = sum(pairs.pairs for pairs in counts["train"].values())
    times = design.prompts / 2 / different
    lines = [
        f"{planned.model} · {planned.dataset} · {planned.attribute}"
        + f" · preset {design.preset}" * bool(design.preset),
        f"  rank {design.rank}, alpha {design.lora_alpha:g}, learning rate {design.learning_rate:g}, batch "
        f"{design.prompts_per_step} prompts, labels {design.labels}, anchor {design.anchor}",
        f"  {design.prompts // 2:,} pairs in both orders = {design.prompts:,} prompts, {count(planned.steps, 'step')}"
        + f"; {different:,} different ones, each about {times:.0f} times" * (times > 1.5),
        f"  split {share * 100:g}/{(1 - share) * 100:g} by query: {split['train']} to train on, "
        f"{split['validation']} to validate, {split['test']} to test"
        + f", {split['unused']} unused"
        * bool(split["unused"]),
    ]
    for part, strata in counts.items():
        of_strata = ", ".join(
            f"{pairs.pairs:,} {stratum} of {count(pairs.queries, 'query', 'queries')}"
            for stratum, pairs in strata.items()
        )
        lines.append(f"  {part} pairs: {of_strata}")
    lines += [
        f"  {overlap.items:,} of {overlap.train_items:,} items trained on stand in measured pairs too",
        f"  tokens a prompt: {tokens.mean:.0f} on average, {tokens.most} at most, {tokens.shared:.0f} of "
        f"them shared by a query (from {tokens.prompts:,} prompts)",
    ]
    if (needs := planned.estimate) is None:
        lines.append("  memory and time: not known of this kind of model")
    else:
        took = " or ".join(
            f"{_minutes(seconds['plain'])} ({_minutes(seconds['shared'])} with shared beginnings) on one {name}"
            for name, seconds in needs.seconds.items()
        )
        lines.append(
            f"  about {needs.weights_gib + needs.training_gib:.1f} GiB ({needs.weights_gib:.1f} of weights); "
            f"{needs.petaflop:.3g} PFLOP: {took}, at half of its peak"
        )
    for number, prompt in enumerate(planned.prompts, 1):
        answers = ", ".join(f"{label} = {token}" for label, token in prompt.answers.items())
        lines += ["", f"Prompt {number} ({prompt.pair_id}; answer ids: {answers}):", prompt.text]
    return "\n".join([*lines, "", "Nothing was asked."]) + "\n"


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def merge_text(merged: MergeResults) -> str:
    """What merging an adapter changed, and what to do before it is used."""
    matrices = count(merged.matrices, "matrix", "matrices")
    return "\n".join(
        (
            f"{merged.adapter} merged into {merged.base}: {matrices}, |ΔW|/|W| {merged.change:.2g}",
            f"  rounding to {merged.dtype} is {100 * merged.distortion:.2g} % of the change; "
            f"{merged.flipped:,} of {count(merged.answers, 'probe answer')} flip"
            + (" (asked with titles alone; it was trained on texts)" if merged.titles_alone else ""),
            f"  a merged model is not the adapter: audit it with llmfair pairwise -m hf:{merged.output} "
            f"--answers margin --form {merged.form}",
            merged.output,
        )
    )


# The verdict of a training: is the preference gone on queries that it never saw, and is nothing else lost?


REPAIRED, REJECTED, INCONCLUSIVE = STATUSES = ("repaired", "rejected", "inconclusive")
GRAVEST = (Conclusion.OUTSIDE, Conclusion.NOT_ASSESSABLE, Conclusion.INCONCLUSIVE, Conclusion.WITHIN)
OTHERWISE = "another --labels or --anchor, or a lower --learning-rate"


def judged(results: FinetuneResults, audited: str) -> FinetuneResults:
    """The results with their verdict: rejected where a gate is not kept or the preference is still there, repaired
    where all odds lie in the band. `audited` is the command that audits the adapter."""
    rows = {
        (row.measure, row.condition): row for row in results.rows if row.model == ADAPTER and not row.group
    }
    findings = results.findings[ADAPTER]
    conclusions = Conclusions(
        task="pairwise", run=results.run, dataset=results.dataset, attribute=results.attribute, model=results.model,
        words=results.words, level=results.level, band=results.band, measures=[HEADLINE],
        conditions=[stratum for stratum in PAIR_STRATA if stratum in findings], findings=findings, figures=rows,
    )  # fmt: skip
    cases = [Case(conclusions, stratum, findings[stratum]) for stratum in conclusions.conditions]
    gravest = min(cases, key=lambda case: GRAVEST.index(case.finding.conclusion), default=None)
    status, why, following = _status(results, gravest, audited)
    queries = count(results.design.split["test"], "query that was", "queries that were")
    odds = listed([f"{case.interval} of {case.condition} pairs" for case in cases] or ["undefined"])
    sentence = f"{why}; preference odds on {queries} not trained on: {odds} ({results.level * 100:g} % CI)"
    group: str | None = None
    figure: Figure = absent_row(HEADLINE, "")
    if gravest is not None:
        sentence += VerdictWords("").caution(gravest)
        figure = gravest.figure or figure
        if gravest.groups is not None and gravest.finding.conclusion is Conclusion.OUTSIDE:
            group = gravest.groups[0]
    verdict = RunVerdict(
        status=status,
        sentence=sentence,
        next=following,
        condition=None if gravest is None else gravest.condition,
        measure=HEADLINE,
        group=group,
        estimate=figure.value,
        low=figure.low,
        high=figure.high,
        n=figure.n,
    )
    return structs.replace(results, verdict=verdict)


def _status(results: FinetuneResults, gravest: Case | None, audited: str) -> tuple[str, str, str]:
    """The status, why it is this one, and what to do next."""
    if results.training.rejected:
        why = str(results.training.why).rstrip(".")
        return REJECTED, why, f"what came nearest is in rejected/; try {OTHERWISE}"
    if lost := missed(results.gates_on_test):
        return REJECTED, f"gates are not kept on the test queries: {lost}", f"try {OTHERWISE}"
    if gravest is None:
        return INCONCLUSIVE, "nothing was measured", audited
    of, band = f"{gravest.condition} pairs", gravest.band
    match gravest.finding.conclusion:
        case Conclusion.OUTSIDE:
            why = f"all gates are kept, but the odds of {of} still lie outside {band}"
            return REJECTED, why, f"try {OTHERWISE}"
        case Conclusion.WITHIN:
            return REPAIRED, f"all intervals of the odds lie in {band}, and all gates are kept", audited
        case Conclusion.INCONCLUSIVE:
            why = f"all gates are kept, but the interval of {of} crosses an edge of {band}"
            more = f"{VerdictWords('').settle(gravest)}; a lower --train-share leaves more to measure on"
            return INCONCLUSIVE, why, more
    reason = in_words(gravest.finding.reason, gravest.finding.measure)
    return INCONCLUSIVE, f"all gates are kept, but nothing can be said of {of}: {reason}", audited


def audit_of(settings: FinetuneSettings, model: str, folder: Path) -> str:
    """The command line that audits the adapter on the queries that it never saw."""
    return (
        f"llmfair pairwise -m {shlex.quote(model)} --adapter {shlex.quote(str(folder))} "
        f"--queries {shlex.quote(f'@{folder}/test-queries.txt')} --answers margin --form {settings.form} "
        + settings.as_flags(SHARED_WITH_TRAINING)
    ).rstrip()


# The page of a LoRA adapter: answers of base and adapter on the same pairs, before and after.


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
    section = Section(finetune_table(results), [*_plots(results)], [*_verdicts(results)], words=WORDS)
    return plain_page(
        results, exhibits, section, "LoRA adapter",
        f"{results.model} with adapter {results.run}, {results.attribute}", asdict(results.words), (),
        [*adapter_warnings(results)],
    )  # fmt: skip


def adapter_warnings(results: FinetuneResults) -> Iterator[str]:
    """What has to be known before any figure is read."""
    if results.status == "rejected":
        yield f"{capitalised(str(results.training.why))} The adapter in rejected/ is not meant to be used."
    if lost := missed_on_test(results):
        yield f"{capitalised(lost)}."


def _verdicts(results: FinetuneResults) -> Iterator[VerdictCard]:
    """What each relevance stratum came to, in the sentences of the table."""
    rows = _rows(results)
    for stratum in PAIR_STRATA:
        row = rows.get((ADAPTER, HEADLINE, stratum, ""))
        if row is None or row.value is None:
            continue
        sentences, conclusion = [], ""
        if (finding := results.findings[ADAPTER].get(stratum)) is not None:
            conclusion = str(finding.conclusion)
            sentences = [pair_conclusion(finding, row, results.level, results.band, results.words)]
        if stratum in results.changes and (change := odds_change(stratum, results, rows)):
            sentences.append(f"base → adapter {change}")
        yield verdict(
            f"{stratum} pairs, adapter", ODDS, row, "; ".join(sentences), conclusion, band=results.band
        )


def _plots(results: FinetuneResults) -> Iterator[Plot]:
    """Figure 4 of the paper: shares of answers, and their ratio; and what the position has to do with it."""
    rows = _rows(results)

    def both(measure: str, stratum: str) -> tuple[Value | None, Value | None]:
        before, after = (value_of(rows.get((model, measure, stratum, ""))) for model in MODELS[:2])
        return before, after

    shares = [
        (f"{stratum}\n{model}", _shares(answers))
        for stratum, times in results.figure_4.items()
        for answers, model in zip(times.values(), MODELS, strict=False)
        if answers.pairs
    ]
    if shares:
        yield stacked_answers(shares, asdict(results.words))
    for measure, name, band in ((HEADLINE, ODDS, results.band), (SMOOTHED, "ratio", None)):
        values = {stratum: both(measure, stratum) for stratum in PAIR_STRATA}
        lines = [(stratum, on_log(before), on_log(after)) for stratum, (before, after) in values.items()]
        if any(after for *_, after in lines):
            yield ratios(lines, name, band, f"{capitalised(name)}, before and after", measure)
    first = [
        (f"{stratum}\n{model}", value)
        for stratum in PAIR_STRATA
        for model, value in zip(MODELS, both("FirstSlotRate", stratum), strict=False)
        if value
    ]
    if first:
        yield position_bias(first)


def _shares(answers: AnswersOnPairs) -> dict[str, float]:
    """Shares of cells; what is neither won nor flipped is tied, since margins are always read."""
    won, lost, flipped = (of.value or 0.0 for of in (answers.protected, answers.unprotected, answers.flipped))
    return {"PP": won, "UU": lost, "FF": flipped, "T": max(0.0, 1 - won - lost - flipped)}


ADAPTER_PAGE = General(
    words=WORDS,
    page=adapter_page,
    table=lambda source: finetune_table(source.results),
    warnings=lambda source: adapter_warnings(source.results),
    outcome=lambda source: [("", of)] if (of := source.results.verdict) else [],
)
