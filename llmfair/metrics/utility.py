"""How useful a ranking is: P@k, nDCG@k and the rest of ir_measures; the nDCG of TREC Fair; overlap@k."""

from __future__ import annotations

import ast
from collections.abc import Collection, Hashable, Mapping
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from llmfair.errors import UsageError
from llmfair.metrics import base
from llmfair.metrics.base import Judged, Measure, Undefined, Values, measure
from llmfair.nouns import Side

TREC_EVAL = "as trec_eval computes it"
SAID = {
    "P": "Share of k that the relevant items among the first k are, however short the list",
    "R": "Share of the relevant items that stand among the first k",
    "AP": "Mean of the precision at the rank of every relevant item, 0 for those that are not ranked",
    "RR": "One over the rank of the first relevant item",
    "nDCG": "Gain of the ranking, each item's divided by log2(1 + rank), over that of the best order there is",
    "Success": "Whether a relevant item stands among the first k",
    "Rprec": "Precision at the rank that is the number of relevant items",
}
"""What the best known are, by their names there, in a sentence."""


@cache
def trec_eval_names() -> dict[str, str]:
    """What ir_measures computes with pytrec_eval and averages over queries: case-folded name to name."""
    import ir_measures

    computed = {supported.NAME for supported in ir_measures.pytrec_eval.SUPPORTED_MEASURES}
    return {
        name.casefold(): name
        for name, named in ir_measures.measures.registry.items()
        if named.NAME in computed and isinstance(named.aggregator(), ir_measures.MeanAgg)
    }


def trec_eval_measure(
    name: str, written: Mapping[str, str], cutoff: str | None, also: Collection[str]
) -> Measure:
    """A measure of ir_measures by its name there; `also` are parameters of ours that an error may suggest.

    Raises UsageError for an unknown parameter or value, and for what pytrec_eval does not compute.
    """
    import ir_measures

    named = ir_measures.measures.registry[name]
    spoken, declared, at = named.__name__, named.SUPPORTED_PARAMS, named.AT_PARAM
    arguments = dict(named.params)
    for param, text in {**written, **({} if cutoff is None else {at: cutoff})}.items():
        if param == at and at not in declared:
            raise UsageError(f"{spoken} takes no cutoff.", f"write it without @{text}")
        if param not in declared:
            raise base.unknown_param(spoken, param, {*declared, *also} - {at})
        value = arguments[param] = _literal(text, declared[param].dtype)
        numbers = [*value.values()] if isinstance(value, dict) else [value] * isinstance(value, int)
        # a negative gain crashes trec_eval
        least = 1 if param == "cutoff" else 0 if isinstance(value, dict) else -base.LONGEST_LIST
        sound = all(isinstance(number, int) and least <= number <= base.LONGEST_LIST for number in numbers)
        if not (sound and declared[param].validate(value)):
            raise UsageError(f"{spoken}: {param} cannot be '{text}'.", f"{param}: {declared[param].desc}")
    if at in declared and declared[at].required and at not in arguments:
        raise UsageError(f"{spoken} needs a {at}.", f"write {spoken}@k")
    exact = type(named)(**arguments)
    if not ir_measures.pytrec_eval.supports(exact):
        raise UsageError(
            f"{exact} is not computed by pytrec_eval.", "for dcg=exp-log2 write gains={1:1,2:3,3:7}"
        )
    params = tuple(
        (param, _spelled(value))
        for param, value in sorted(arguments.items())
        if param != at and value != declared[param].default
    )
    definition = base.Definition(
        spoken, partial(_trec_eval, exact), bounds=(0.0, 1.0), better="higher", label=spoken,
        headline=str(exact) == "P@20",  # the paper's figure
        cite=TREC_EVAL, says=SAID.get(named.NAME, ""),
    )  # fmt: skip
    return Measure(spoken, params, arguments.get(at), definition)


def _literal(text: str, kind: type) -> Any:
    """The value a parameter of ir_measures is written for."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return float(value) if kind is float and isinstance(value, int) else value


def _spelled(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gain}" for key, gain in sorted(value.items())) + "}"
    return str(value)


def _trec_eval(exact: Any, judged: Judged, cutoff: float | None) -> Mapping[str, float | Undefined]:
    """As trec_eval has it: 0 without relevant documents, and 0 for a judged query that was not ranked.

    A query without any judgement is in no qrels file, so trec_eval does not speak of it.
    """
    relevance = judged.candidates.relevance
    if not relevance:
        return {"": Undefined("no_relevant")}
    if not judged.rankings:
        return {"": float(exact.DEFAULT)}
    query_id, n = judged.query_id, len(judged.doc_ids)
    judgements = relevance if isinstance(relevance, Hashable) else tuple(relevance.items())
    evaluator = _evaluator(exact, query_id, judgements)
    values = [
        metric.value
        for order in judged.orders
        for metric in evaluator.iter_calc(
            # strictly falling scores: tied ones would be put in the order of doc_ids
            {query_id: {judged.doc_ids[place]: float(n - rank) for rank, place in enumerate(order.tolist())}}
        )
    ]
    return {"": float(np.mean(values))}


@lru_cache(maxsize=512)
def _evaluator(exact: Any, query_id: str, relevance: Mapping[str, int] | tuple[tuple[str, int], ...]) -> Any:
    """Costs more to make than to ask, and every prompt ranks the same queries."""
    import ir_measures

    rows = relevance.items() if isinstance(relevance, Mapping) else relevance
    return ir_measures.pytrec_eval.evaluator([exact], {query_id: dict(rows)})


@measure(
    "nDCG", params={"discount": ("trec",), "ideal": None}, bounds=(0.0, 1.0),
    lifted_by="ideal",  # which may be less than the cutoff
    better="higher", label="nDCG (TREC Fair)", cite="TREC Fair Ranking 2021, 2022, metric code",
)  # fmt: skip
def trec_fair_ndcg(judged: Judged, cutoff: int | None, discount: str, ideal: int | None) -> Values:
    """nDCG of the TREC Fair Ranking track: binary gain, weight w(r) = 1/log2(max(r, 2)).

    Σ_{r ≤ k} w(r) rel(r) / Σ_{r ≤ min(I, R)} w(r), R relevant documents; I is k unless given. Without R:
    `no_relevant`. The official code rounds weights to 32 bits, so it differs by up to 2e-6.
    """
    relevant = sum(grade >= 1 for grade in judged.candidates.relevance.values())
    if not relevant:
        return Undefined("no_relevant")
    if not judged.rankings:
        return Undefined("not_ranked")
    weights = 1 / np.log2(np.maximum(np.arange(1, max(len(judged.doc_ids), relevant) + 1), 2))
    gain = np.mean(
        [weights[: len(order)][:cutoff] @ (judged.grades[order][:cutoff] >= 1) for order in judged.orders]
    )
    return float(gain / weights[:relevant][: ideal or cutoff].sum())


@measure(
    "overlap", cutoff="required", bounds=(0.0, 1.0), better="higher", label="overlap",
    cite="DELTR, precision at top k",
)  # fmt: skip
def overlap(judged: Judged, cutoff: int) -> Values:
    """|first k ranked ∩ first k of the reference order| / k.

    Reference order: relevance falling, then unprotected, protected, no side, then candidate order; on lists
    drawn in four buckets this is the DELTR order.
    """
    if not judged.rankings:
        return Undefined("not_ranked")
    ranks = {Side.UNPROTECTED: 0, Side.PROTECTED: 1, None: 2}
    sides = np.array([ranks[judged.sides.get(doc_id)] for doc_id in judged.doc_ids])
    reference = set(np.lexsort((sides, -judged.grades))[:cutoff].tolist())
    shared = [len(reference.intersection(order[:cutoff].tolist())) / cutoff for order in judged.orders]
    return float(np.mean(shared))
