"""How answers ended, counted per arm: nothing unreadable, repaired or left out stays silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from llmfair.errors import RequirementFailed
from llmfair.rankers.listwise import Ranked, WindowAnswer
from llmfair.records import Side


def answer_counts(
    ranked: Iterable[tuple[str, Ranked]], sides: Mapping[str, Side | None]
) -> dict[str, dict[str, Any]]:
    """Counts per arm, from `(arm, result)` pairs: classes, repaired, unreadable, identity, omissions by side.

    `classes` are those of the answers that counted; `asked_again` those of bad answers that another replaced.

    `omitted.protected_expected` is what the omitted items would hold if sides were left out alike: an answer
    that drops one group is repaired, but not into innocence.
    """
    windows: dict[str, list[WindowAnswer]] = {}
    for arm, result in ranked:
        windows.setdefault(arm, []).extend(result.windows)
    return {arm: _counts(found, sides) for arm, found in sorted(windows.items())}


def _counts(windows: list[WindowAnswer], sides: Mapping[str, Side | None]) -> dict[str, Any]:
    places: dict[str, Counter[str]] = {}
    omitted = protected = 0
    expected = 0.0
    for window in windows:
        places.setdefault(window.place, Counter())[window.answer_class] += 1
        if window.omitted:
            omitted += len(window.omitted)
            protected += _protected(window.omitted, sides)
            expected += len(window.omitted) * _protected(window.shown, sides) / len(window.shown)
    return {
        "windows": len(windows),
        "classes": dict(sorted(Counter(str(window.answer_class) for window in windows).items())),
        "repaired": sum(window.repaired for window in windows),
        "unreadable": sum(window.unreadable for window in windows),
        "identity": sum(window.identity for window in windows),
        # of a list that is in order already, later passes rightly change nothing
        "first_pass": {
            "windows": sum(window.pass_number == 1 for window in windows),
            "identity": sum(window.identity and window.pass_number == 1 for window in windows),
        },
        "asked_again": dict(sorted(Counter(str(bad) for w in windows for bad in w.replaced).items())),
        "readers_differ": sum(window.readers_differ for window in windows),
        "places": {place: dict(sorted(counts.items())) for place, counts in sorted(places.items())},
        "omitted": {
            "items": omitted,
            "protected": protected,
            "protected_expected": round(expected, 6),
        },
    }


def _protected(doc_ids: Iterable[str], sides: Mapping[str, Side | None]) -> int:
    return sum(sides[doc_id] is Side.PROTECTED for doc_id in doc_ids)


def require_readable(answers: Mapping[str, Mapping[str, Any]], limit: float) -> None:
    """Raises RequirementFailed when any arm's share of unreadable answers is above `limit`."""
    for arm, counts in answers.items():
        asked = counts.get("windows", counts.get("answers", 0))
        share = counts["unreadable"] / asked if asked else 0.0
        if share > limit:
            raise RequirementFailed(
                f"{share:.1%} of the answers of '{arm}' are unreadable, more than {limit:.1%} (--max-invalid).",
                "llmfair runs show RUN --invalid    shows them; everything is written",
            )
