"""Several processes that a launcher starts speak as one."""

from __future__ import annotations

from llmfair.cli.options import no_settings


def test_the_first_process_alone_names_variables_that_nothing_reads() -> None:
    slip = {"LLMFAIR_BANDD": "1"}
    (said,) = no_settings(slip, {"LLMFAIR_BAND"})
    assert said == "LLMFAIR_BANDD is no setting; did you mean LLMFAIR_BAND?"
    assert [*no_settings({**slip, "RANK": "0"}, {"LLMFAIR_BAND"})] == [said]
    assert [*no_settings({**slip, "RANK": "1"}, {"LLMFAIR_BAND"})] == []
