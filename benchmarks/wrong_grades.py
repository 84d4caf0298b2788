"""What wrong grades make of lists that are ranked without preference: `python -m benchmarks.wrong_grades`, seconds.

Items of two groups are relevant with different chances, a share of grades is wrong, and what is truly relevant is
ranked ahead by its strength. Read: the odds over pairs of equal grade, which look like preference to an audit. Said:
what `--label-error` prints for that share, from the grades and from how often the better graded of two is ahead.
"""

from __future__ import annotations

import numpy as np

from llmfair.audits.label_error import Judged, odds_with

QUERIES, ITEMS = 10_000, 20
STRATA = ("relevant", "irrelevant", "all")


def read(
    shares: tuple[float, float], wrong: float, strength: float, rng: np.random.Generator
) -> tuple[dict[str, float], Judged, float]:
    """The odds by stratum, the grades given, and the share of pairs in which the better graded is ahead."""
    side = np.repeat([0, 1], ITEMS)
    true = rng.random((QUERIES, 2 * ITEMS)) < np.array(shares)[side]
    given = true ^ (rng.random(true.shape) < wrong)
    score = strength * true + rng.logistic(size=true.shape)
    ahead = score[:, :ITEMS, None] > score[:, None, ITEMS:]
    alike = given[:, :ITEMS, None] == given[:, None, ITEMS:]
    relevant = np.broadcast_to(given[:, :ITEMS, None], alike.shape)
    odds = {}
    for stratum, of_it in zip(STRATA, (alike & relevant, alike & ~relevant, alike), strict=True):
        pairs = of_it.sum(axis=(1, 2))
        chance = ((ahead & of_it).sum(axis=(1, 2))[pairs > 0] / pairs[pairs > 0]).mean()
        odds[stratum] = float(chance / (1 - chance))
    better = given[:, :, None] & ~given[:, None, :]
    right = (score[:, :, None] > score[:, None, :]) & better
    counts = better.sum(axis=(1, 2))
    better_ahead = float((right.sum(axis=(1, 2))[counts > 0] / counts[counts > 0]).mean())
    groups = {
        name: (QUERIES * ITEMS, int(given[:, side == number].sum()))
        for number, name in enumerate(("protected", "unprotected"))
    }
    return odds, groups, better_ahead


def main() -> None:
    rng = np.random.default_rng(0)
    print(
        f"{'relevant':12} {'wrong':>6} {'strength':>9}  "
        + "  ".join(f"{name + ': read, said':>24}" for name in STRATA)
    )
    for shares, wrong, strength in (
        ((0.15, 0.35), 0.1, 1.0), ((0.15, 0.35), 0.1, 3.0), ((0.1, 0.3), 0.05, 1.5), ((0.2, 0.3), 0.05, 2.0),
        ((0.4, 0.2), 0.1, 2.0), ((0.3, 0.3), 0.1, 2.0),
    ):  # fmt: skip
        odds, groups, better_ahead = read(shares, wrong, strength, rng)
        said = odds_with(wrong, groups, better_ahead)
        cells = "  ".join(f"{odds[name]:>17.3f}  {said[name]:.3f}" for name in STRATA)
        print(f"{shares[0]:.2f}, {shares[1]:.2f}   {wrong:>6.2f} {strength:>9.1f}  {cells}")


if __name__ == "__main__":
    main()
