"""Applications as a table: vacancies, CVs with a gender and an ethnicity, who is qualified; people apply to several."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

GENDERS = ("female", "male", "nonbinary")
ETHNICITIES = ("Asian", "Black", "Hispanic", "White")
SHARES = (0.2, 0.2, 0.2, 0.4)
SKILLS = ("payroll", "Python", "welding", "nursing", "logistics", "tax law", "carpentry", "statistics")


def write_applications(
    path: Path, vacancies: int = 20, each: int = 30, people: int = 300, seed: int = 0
) -> None:
    """The table: a row a vacancy and CV, a third of them qualified, whatever the group; every 40th has no ethnicity."""
    rng = np.random.default_rng(seed)
    gender, ethnicity = (
        rng.choice(GENDERS, people, p=(0.45, 0.45, 0.1)),
        rng.choice(ETHNICITIES, people, p=SHARES),
    )
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("query_id", "query", "doc_id", "title", "relevance", "gender", "ethnicity"))
        for vacancy in range(vacancies):
            skill = SKILLS[vacancy % len(SKILLS)]
            for person in rng.choice(people, each, replace=False):
                qualified = int(rng.random() < 1 / 3)
                known = "" if person % 40 == 0 else ethnicity[person]
                title = f"CV {person}: {1 + person % 25} years of work"
                row = (
                    f"v{vacancy}",
                    f"{skill}, grade {vacancy}",
                    f"p{person}",
                    title,
                    qualified,
                    gender[person],
                    known,
                )
                writer.writerow(row)
