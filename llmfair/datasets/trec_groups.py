"""The groups of TREC Fair Ranking 2021 and 2022: what the raw labels of its metadata are read as."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

GENDERS = {
    **dict.fromkeys(("female", "cisgender female", "transgender female"), "female"),
    **dict.fromkeys(("male", "cisgender male", "transgender male"), "male"),
}
CONTINENTS = (
    "Africa", "Antarctica", "Asia", "Europe", "Latin America and the Caribbean", "Northern America", "Oceania",
)  # fmt: skip
SUBREGIONS = (
    "Antarctica", "Caribbean", "Central America", "Central Asia", "Eastern Africa", "Eastern Asia", "Eastern Europe",
    "Middle Africa", "Northern Africa", "Northern America", "Northern Europe", "Oceania", "South America",
    "South-eastern Asia", "Southern Africa", "Southern Asia", "Southern Europe", "Western Africa", "Western Asia",
    "Western Europe",
)  # fmt: skip
REGIONS = {
    **{region: region for region in (*CONTINENTS, *SUBREGIONS)},
    **dict.fromkeys(("Australia and New Zealand", "Melanesia", "Micronesia", "Polynesia"), "Oceania"),
}
GROUP_OF: Mapping[str, Callable[[str], str | None]] = {
    "gender": lambda label: GENDERS.get(label, "nonbinary"),  # the organisers' rule: every other label
    "location": REGIONS.get,
}
UNKNOWN = frozenset({"", "@UNKNOWN", "Unknown", "UNK"})


def canonical_groups(attribute: str, labels: Sequence[str] | None) -> tuple[str, ...]:
    """The groups of raw labels in file order without repeats; none, `[]` and unknown places are the empty tuple."""
    found = (GROUP_OF[attribute](label) for label in labels or () if label not in UNKNOWN)
    return tuple(dict.fromkeys(group for group in found if group is not None))
