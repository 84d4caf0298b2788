"""The run that remedies are held against, and remedies, each registered by name: what it changes, asks and needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from llmfair import registry
from llmfair.audits.commands import TRAINABLE, command_of, training_of
from llmfair.audits.kind import kind_of
from llmfair.audits.listwise.results import ListwiseResults
from llmfair.audits.listwise.score import Rankings, of_folder
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.subject import Subject, make_ranker
from llmfair.errors import UsageError
from llmfair.io import secrets
from llmfair.metrics.base import Judged, read_parameters
from llmfair.nouns import Candidates, Ranking, Side
from llmfair.prompts import wordings
from llmfair.rankers.base import remarks
from llmfair.rankers.deltr import folds
from llmfair.rankers.reranking import consensus, ranks_of
from llmfair.registry import register
from llmfair.rundir import ONE_OF_SEVERAL, Manifest, RunDir
from llmfair.settings.commands import AuditSettings, MitigateSettings, ScoreSettings
from llmfair.settings.declaration import flag_of
from llmfair.stats.power import bradley_terry, offset_to_parity

NEUTRAL, REPEAT = "neutral", "repeat"
TASK = "listwise"
SECRET = ("extra", "base_url")
"""Settings that a manifest keeps without what is secret in them."""
Orders = Mapping[str, Sequence[Ranking]]
"""The rankings of each query, one for each initial order and repeat."""


@dataclass(frozen=True)
class Unmitigated:
    """A complete listwise run under one of its prompts; `chosen` are the settings of the command that mitigates it."""

    run: RunDir
    manifest: Manifest
    settings: ListwiseSettings
    rankings: Rankings
    condition: str
    chosen: MitigateSettings

    @property
    def results(self) -> ListwiseResults:
        assert self.rankings.audit is not None
        return self.rankings.audit

    @property
    def model(self) -> str:
        """Whose rankings they are, as results name it."""
        return self.manifest.model

    def require_prompt(self) -> None:
        """Raises UsageError where nobody could be asked otherwise: a ranker reads no prompt."""
        if not self.results.design.prompted:
            raise UsageError(f"{self.model} reads no prompt.", "use remedies that order its rankings anew")

    @cached_property
    def orders(self) -> Orders:
        """The whole rankings of every query under this prompt."""
        return self.completed(orders_of(self.rankings, self.condition))

    def completed(self, orders: Orders) -> Orders:
        """Rankings of the run's lists with what they leave out behind them."""
        whole = dict[str, list[Ranking]]()
        for judged in self.judged(orders):
            doc_ids = (tuple(judged.doc_ids[place] for place in order) for order in judged.orders)
            whole[judged.query_id] = [Ranking(judged.query_id, of) for of in doc_ids]
        return whole

    def judged(self, orders: Orders) -> list[Judged]:
        """What measures read of rankings of the run's lists."""
        return [self.rankings.against.judged(query_id, rankings) for query_id, rankings in orders.items()]

    def candidates(self, ranking: Ranking) -> Candidates:
        """A ranking as rerankers take it; all that is known of its scores is that they fall."""
        (judged,), n = self.judged({ranking.query_id: [ranking]}), len(ranking.doc_ids)
        places = {doc_id: place for place, doc_id in enumerate(judged.candidates.doc_ids)}
        ordered = judged.candidates.at([places[doc_id] for doc_id in ranking.doc_ids])
        return replace(ordered, scores=tuple(float(n - rank) for rank in range(n)))

    def command(self, **differs: Any) -> str:
        """The command of the run with other settings."""
        return command_of(TASK, replace(self.settings, **differs), self.model)

    def again(self, subject: Subject, **differs: Any) -> Audit:
        """The same lists under this prompt, asked once more, of this subject and with other settings. Raises UsageError
        where the run's lack a secret."""
        for name in SECRET:
            lacks = [value for value in getattr(self.settings, name) if secrets.HIDDEN in value]
            if lacks:
                flag = f"--{flag_of(name)}"
                raise UsageError(
                    f"the run was asked with {flag} {lacks[0]}, and no run folder keeps what is secret.",
                    f"give it again: llmfair mitigate {self.run.path} {flag} …",
                )
        settings = replace(self.settings, conditions=self.condition, repeat=False, **differs)
        return Audit(settings, subject)


def orders_of(rankings: Rankings, condition: str) -> Orders:
    """The rankings under one of a run's prompts, as answered."""
    files = rankings.conditions[condition]
    return {of: [file.rankings[of] for file in files] for of in sorted(files[0].rankings)}


def unmitigated(run: RunDir, chosen: MitigateSettings) -> Unmitigated:
    """Reads a run. Raises UsageError for what is no complete listwise run, and for a prompt that it lacks."""
    manifest = run.read_manifest()
    if (manifest.task, manifest.status) != (TASK, "complete"):
        raise UsageError(
            f"{run.path} is no complete run of rankings.",
            "llmfair listwise makes one; the command that began a run completes it",
        )
    settings = kind_of(TASK).settings.from_flags(manifest.flags, run.manifest)
    assert isinstance(settings, ListwiseSettings)
    for name in SECRET:
        given = {secrets.written(secret): secret for secret in getattr(chosen, name)}
        values = tuple(given.get(value, value) for value in getattr(settings, name))
        settings = replace(settings, **{name: values})  # type: ignore[arg-type]
    rankings = of_folder(run, ScoreSettings())
    if rankings.audit is not None and rankings.audit.design.contrasts:
        raise UsageError(
            f"{run.path} compares several groups, and remedies are for two.",
            "audit with --contrast binary: protected and unprotected in attributes.toml",
        )
    names = [name for name in rankings.conditions if not ONE_OF_SEVERAL.search(name) and name != REPEAT]
    condition = chosen.condition or (NEUTRAL if NEUTRAL in names else names[0])
    if condition not in names:
        raise UsageError(
            f"--condition {condition}: the run has no such prompt.", f"it has {', '.join(names)}"
        )
    return Unmitigated(run, manifest, settings, rankings, condition, chosen)


# What a remedy is: a value that makes other rankings of a run's lists, with no call or by asking anew, registered by
# `@register("remedy", NAME)`. One that a run or this machine lacks something for raises an error that says what, and
# the way out: it is named in the table, and no more.

MOST_HALVES = 10
"""So many ways to deal orders into two halves are looked at."""
Halves = Mapping[str, Sequence[tuple[Ranking, Ranking]]]
"""By query, what two halves of its orders come to where they are merged apart: how consistent such rankings are."""


@dataclass(frozen=True)
class Remedied:
    """The rankings of each query after a remedy; `remarks` have to be known to read its figures. `calls`: those behind
    them beside those of the unmitigated ones; `condition`: the prompt of the run whose answers they are."""

    orders: Orders
    halves: Halves | None = None
    remarks: Sequence[str] = ()
    calls: int = 0
    condition: str | None = None


@dataclass(frozen=True)
class Audit:
    """What has to be asked: a listwise audit, run as its command runs it, of which the run's prompt is read."""

    settings: AuditSettings
    subject: Subject
    remarks: Sequence[str] = ()


class Remedy(ABC):
    """A way to fairer rankings. `title` names it in words, `does` says what it is, in a sentence of the method. `asks`:
    whether it asks a model. `parameters` is what stands behind its name and a colon."""

    title: ClassVar[str]
    does: ClassVar[str]
    asks: ClassVar[bool] = False

    def __init__(self, parameters: str = "") -> None:
        if parameters:
            raise UsageError(f"this remedy takes no parameters like ':{parameters}'.", "leave it out")

    @abstractmethod
    def apply(self, run: Unmitigated) -> Remedied | Audit:
        """The new rankings, or what has to be asked for them. Raises LlmfairError where the run lacks what it needs."""


def merged(
    run: Unmitigated, merger: Callable[[Sequence[Ranking]], Ranking], remarks: Sequence[str] = ()
) -> Remedied:
    """One ranking of all the orders of each list, and those of their halves."""
    rankings, dealt = dict[str, list[Ranking]](), dict[str, list[tuple[Ranking, Ranking]]]()
    for query_id, orders in run.orders.items():
        rankings[query_id] = [merger(orders)]
        dealt[query_id] = [
            (merger([orders[k] for k in first]), merger([orders[k] for k in second]))
            for first, second in halves(len(orders))
        ]
    return Remedied(rankings, dealt, remarks)


def halves(count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The ways to deal so many orders into two halves, each once; of an odd number one half has one more."""
    dealt = (
        (half, tuple(order for order in range(count) if order not in half))
        for half in combinations(range(count), count // 2)
        if half and (count % 2 or half[0] == 0)
    )
    return [*islice(dealt, MOST_HALVES)]


class Reranking(Remedy):
    """A registered ranker that orders each ranking anew: it goes by groups, and by the places as scores."""

    ranker: ClassVar[str]

    def __init__(self, parameters: str = "") -> None:
        self.parameters = parameters
        read_parameters(self.ranker, parameters, registry.lookup("ranker", self.ranker).declared)

    def apply(self, run: Unmitigated) -> Remedied:
        against, spec = run.rankings.against, f"{self.ranker}:{self.parameters}"
        documents = against.judgements.documents.values()
        ranker = make_ranker(spec, documents, against.attribute, groups=against.groups)
        orders, firsts = dict[str, list[Ranking]](), list[Candidates]()
        for query_id, rankings in run.orders.items():
            lists = [ranker.ordered(run.candidates(ranking))[0] for ranking in rankings]
            orders[query_id] = [Ranking(query_id, each.doc_ids) for each in lists]
            firsts.append(lists[0])
        return Remedied(orders, remarks=remarks(ranker, firsts))


@register("remedy", "consensus")
class Consensus(Remedy):
    title = "consensus"
    does = (
        "The rankings of a list from its different initial orders become one, that with the least sum of Kendall "
        "distances to them (permutation self-consistency, Tang et al., arXiv 2310.07712). Noise cancels; what all "
        "orders share stays, a preference too."
    )

    def apply(self, run: Unmitigated) -> Remedied:
        run.require_prompt()
        if max(map(len, run.orders.values())) < 2:
            raise UsageError(
                "the run ranked each list once, and a consensus takes several orders.", run.command(orders=3)
            )
        return merged(run, consensus)


@register("remedy", "fair-prompt")
class FairPrompt(Remedy):
    """`fair-prompt:FILE` asks with a prompt of one's own."""

    title = "fair instruction"
    asks = True
    does = (
        "The same lists in the same initial orders are asked about once more, with one sentence added to the prompt "
        "that asks to treat items of all groups alike (llmfair prompts show listwise-fair)."
    )

    def __init__(self, parameters: str = "") -> None:
        self.prompt = parameters

    def apply(self, run: Unmitigated) -> Audit:
        run.require_prompt()
        file, twins = "" if run.manifest.prompt is None else run.manifest.prompt.file, wordings(TASK)
        if not self.prompt and file not in twins:
            raise UsageError(
                "the run's prompt is a file of your own, to which llmfair has no fair twin.",
                "--remedy fair-prompt:FILE    a copy of it with a fair instruction",
            )
        prompt = self.prompt or f"{twins[file]}-fair"
        spec, _, adapter = run.model.partition(" + ")
        audit = run.again(Subject(spec, run.settings.adapter, bool(adapter)), prompt=prompt)
        unread = "simulated models read no words, so the instruction cannot move them"
        return replace(audit, remarks=[unread] * run.manifest.simulated)


@register("remedy", "fair-star")
class FairStar(Reranking):
    title = "FA*IR"
    ranker = "fair-star"
    does = (
        "No beginning of a ranking has fewer protected items than chance would leave of a share p (FA*IR, Zehlike et "
        "al. 2017; p = 0.3, α = 0.15, k = 400 unless fair-star:p=… says otherwise). It moves what a ranking has "
        "against a share, and reads no judgement."
    )


@register("remedy", "greedy")
class Greedy(Reranking):
    title = "greedy"
    ranker = "greedy"
    does = (
        "The next item is the one with the best of λ · place − (1 − λ) · KL of the page and the target (λ = 0.5). Its "
        "target is the share of groups among the query's relevant items, so it is told what others have to find out."
    )


@register("remedy", "lora")
class Lora(Remedy):
    title = "LoRA adapter"
    asks = True
    does = (
        "The same lists in the same initial orders are asked about once more, of the model with a LoRA adapter "
        "(llmfair finetune-lora trains one; --adapter names it). On queries that it was trained on it is flattered."
    )

    def apply(self, run: Unmitigated) -> Audit:
        backend, _, name = run.model.partition(":")
        if backend not in TRAINABLE or " + " in name:
            able = " or ".join(f"{backend}:NAME" for backend in TRAINABLE)
            raise UsageError(f"{run.model} takes no adapter.", f"a base of this machine does: {able}")
        if (adapter := run.chosen.adapter) is None:
            raise UsageError(
                f"no adapter of {name} is named.",
                f"{training_of(TASK, run.settings, run.model)}    then --adapter FOLDER",
            )
        return run.again(Subject(run.model, adapter), adapter=adapter, adapter_only=True)


@register("remedy", "named-prompt")
class NamedPrompt(Remedy):
    title = "sensitive prompt"
    does = "The rankings of the run's own sensitive prompt that names the protected group, in place of the neutral one."

    def apply(self, run: Unmitigated) -> Remedied:
        run.require_prompt()
        variants = run.rankings.against.attribute.named.items()
        name = next((name for name, side in variants if side is Side.PROTECTED), None)
        if name == run.condition:
            raise UsageError("it is the prompt that is mitigated.", "--condition neutral")
        if name is None or name not in run.results.design.conditions:
            again = (
                run.command(conditions=f"{run.condition},{name}") if name else "`words` in attributes.toml"
            )
            raise UsageError(f"the run did not ask under the {name or 'protected'} prompt.", again)
        return Remedied(orders_of(run.rankings, name), calls=run.results.answers[name].asked, condition=name)


# The offset is the weighted median, over pairs of equally relevant items of both groups, of how far the unprotected one
# is ahead (on the scale of log odds, every query weighing 1), estimated on other queries than those that it is applied
# to (five folds), so that no query's judgements order its own list; to apply it the groups alone have to be known.

Floats = NDArray[np.float64]


@register("remedy", "offset")
class Offset(Remedy):
    title = "logit offset"
    does = (
        "One number is added to the strengths of protected items: Bradley–Terry strengths of the run's orders of each "
        "list, and the offset that brings the odds of equally relevant items to 1, cross-fitted by query (never on "
        "the query it is applied to)."
    )

    def apply(self, run: Unmitigated) -> Remedied:
        offsets, sides = offsets_of(run), run.rankings.against.sides_of[""]

        def merger(rankings: Sequence[Ranking]) -> Ranking:
            doc_ids, ranks = ranks_of(rankings)
            query_id = rankings[0].query_id
            protected = np.array([sides.get(doc_id) is Side.PROTECTED for doc_id in doc_ids])
            scores = bradley_terry(ranks) + offsets[query_id] * protected
            order = np.lexsort((ranks.sum(axis=0), -scores))
            return Ranking(query_id, tuple(doc_ids[place] for place in order))

        low, high = min(offsets.values()), max(offsets.values())
        remark = f"{low:+.2f} to {high:+.2f} added to the log odds of protected items, by fold"
        return merged(run, merger, [remark])


def offsets_of(run: Unmitigated) -> Mapping[str, float]:
    """The offset of each query, from those of the other folds. Raises UsageError for fewer than two comparable ones."""
    margins = dict[str, Floats]()
    for judged in run.judged(run.orders):
        doc_ids, ranks = ranks_of(run.orders[judged.query_id])
        strengths = dict(zip(doc_ids, bradley_terry(ranks), strict=True))
        scores = np.array([strengths[doc_id] for doc_id in judged.doc_ids])
        protected, unprotected = (judged.on_side[side] for side in Side)
        # how far the unprotected item of each two equally relevant ones is ahead of the protected one
        ahead = [
            (scores[unprotected & of][None, :] - scores[protected & of][:, None]).ravel()
            for of in (judged.grades == grade for grade in np.unique(judged.grades))
        ]
        if (of_query := np.concatenate(ahead)).size:
            margins[judged.query_id] = of_query
    if len(margins) < 2:
        raise UsageError(
            f"an offset is fitted on other queries, and {len(margins)} of {len(run.orders)} have two equally relevant "
            "items of both groups.",
            "more queries, or judgements",
        )
    fold = folds(margins, seed=run.settings.seed)
    by_fold = {
        without: offset_to_parity([of for query_id, of in margins.items() if fold[query_id] != without])
        for without in {None, *(fold.get(query_id) for query_id in run.orders)}
    }
    return {query_id: by_fold[fold.get(query_id)] for query_id in run.orders}
