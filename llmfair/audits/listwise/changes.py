"""What changed from one listwise run to another, paired by query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from llmfair.audits.changes import Compared, Row, assessed, changed, check_paired, headlines_of, row_of
from llmfair.errors import UsageError
from llmfair.metrics.base import Measure
from llmfair.metrics.names import parse_measures
from llmfair.stats.paired import change_by_query

OF_ODDS_ALONE = "out_of_reach"
"""Why implied odds cannot be assessed though the exposures that they are read off can."""


def list_changes(base: Compared, other: Compared, chosen: Sequence[Measure] | None) -> Iterator[Row]:
    """Of two listwise runs, from the queries' own values: every measure with a direction, or those chosen.

    Raises UsageError where there is nothing in common.
    """
    arms = [arm for arm in base.arms if arm in other.arms]
    if not arms:
        raise UsageError(
            f"{base.name} and {other.name} have no prompt in common.", "run both with the same --variants"
        )
    both = {name for name, arm in base.values.keys() & other.values.keys() if arm in arms}
    listed = ",".join(name for name in base.results["measures"] if name in both)
    known = parse_measures(listed) if listed else ()
    check_paired(chosen, known)
    # rank agreement is with the initial order, which is no figure of the ranker alone
    directed = [m for m in known if m.definition.better and not m.definition.agreement]
    measures = chosen or directed
    headlines = headlines_of(measures)
    level, seed = base.results["level"], base.settings["seed"]
    for measure in measures:
        for arm in arms:
            key, on_log_scale = (str(measure), arm), measure.definition.scale == "log"
            before, after = base.values.get(key, {}), other.values.get(key, {})
            queries = [
                query
                for query in sorted(before.keys() & after.keys())
                if not on_log_scale or min(before[query], after[query]) > 0
            ]
            row = row_of(other, arm, measure, headlines, base.figure(*key), other.figure(*key))
            if not queries:
                yield replace(row, reason="no_common_query")
                continue
            one, two = ([of_it[query] for query in queries] for of_it in (before, after))
            rng = np.random.default_rng(seed)
            row = changed(row, change_by_query(one, two, on_log_scale, level, rng))
            yield assessed(row, measure, base, other, OF_ODDS_ALONE)
