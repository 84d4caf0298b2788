from __future__ import annotations

from pathlib import Path

import pytest

from tests import shared


@pytest.mark.parametrize(("there", "ends"), [(True, pytest.fail.Exception), (False, pytest.skip.Exception)])
def test_a_file_of_another_name_fails_and_a_folder_that_is_away_skips(
    there: bool, ends: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared, "SHARED", tmp_path if there else tmp_path / "away")
    with pytest.raises(ends, match="gone" if there else "no reference figures"):
        shared.vectors("awrf")
