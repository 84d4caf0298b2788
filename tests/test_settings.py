"""Settings: one place for names and defaults, four sources in a fixed order of precedence."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.cli.options import settings_of_commands
from llmfair.config import find_config, read_config
from llmfair.errors import UsageError
from llmfair.settings import seconds


def test_the_default_design() -> None:
    settings = ListwiseSettings.make()
    assert (settings.window, settings.step, settings.passes, settings.orders) == (20, 10, 3, 3)
    assert settings.repeat and settings.dataset == "sample" and settings.model == ("fake:biased",)


def test_the_paper_preset_and_a_flag_over_it() -> None:
    paper = ListwiseSettings.make("paper")
    assert (paper.window, paper.step, paper.passes, paper.orders, paper.repeat) == (5, 1, 1, 1, False)
    assert ListwiseSettings.make("paper", step=2).step == 2
    with pytest.raises(UsageError, match="Did you mean 'paper'"):
        ListwiseSettings.make("papr")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit": 0}, "--limit is 0, but is at least 1"),
        ({"window": 1}, "--window is 1, but is at least 2"),
        ({"window": 5, "step": 6}, "--step 6 is larger than --window 5"),
        ({"step": 0}, "--step is 0"),
        ({"passes": 0}, "--passes is 0"),
        ({"depth": 0}, "--depth is 0"),
        ({"words": 0}, "--words is 0"),
        ({"level": 1.0}, "--level is 1.0"),
        ({"max_invalid": 2.0}, "--max-invalid is 2.0"),
        ({"max_wait": "soon"}, "'soon' is not a time"),
        ({"timeout": 0.0}, "--timeout is 0.0"),
        ({"initial": "given", "orders": 3}, "--initial given is one order"),
        ({"initial": "mirrored"}, "--initial mirrored pairs the orders"),
        ({"max_calls": 0}, "--max-calls is 0"),
        ({"orders": 100_000_000}, "--orders is 100000000, but is at most 1000"),
        ({"permutations": 1_000_000_000}, "--permutations is 1000000000, but is at most 100000"),
        ({"seed": 2**63}, "--seed is 9223372036854775808, but is at most 9223372036854775807"),
        ({"rpm": float("nan")}, "--rpm is nan, but is a finite number"),
        ({"temperature": float("inf")}, "--temperature is inf, but is a finite number"),
        ({"dataset": "a\0b"}, "--dataset holds a NUL character"),
        ({"runs_dir": Path("a\0b")}, "--runs-dir holds a NUL character"),
    ],
)
def test_values_out_of_range(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        ListwiseSettings.make(**given)
    assert caught.value.hint


def test_every_whole_number_has_bounds() -> None:
    """A new flag says how much of it a machine can hold and a lifetime can take."""
    unbounded = [
        f"{command} --{item.name}"
        for command, classes in settings_of_commands().items()
        for settings in classes
        for item in fields(settings)
        if int in (hint := get_type_hints(settings)[item.name], *get_args(hint))
        if item.metadata["most"] is None
    ]
    assert not unbounded


def test_what_names_a_run_and_what_does_not() -> None:
    base = ListwiseSettings.make()
    for change in (
        {"workers": 3},
        {"retries": 1},
        {"measures": "P@5"},
        {"max_calls": 5},
        {"level": 0.9},
        {"output": Path("x")},
        {"limit": 3},
        {"dataset": "elsewhere"},
    ):
        assert ListwiseSettings.make(**change).of_result() == base.of_result(), change
    for change in ({"seed": 1}, {"window": 10}, {"read": "rankgpt"}, {"temperature": 1.0}, {"words": 5}):
        assert ListwiseSettings.make(**change).of_result() != base.of_result(), change


@pytest.mark.parametrize(("text", "value"), [("90", 90.0), ("90s", 90.0), ("30m", 1800.0), ("1.5h", 5400.0)])
def test_times(text: str, value: float) -> None:
    assert seconds(text) == value


COMMANDS = {"listwise": get_type_hints(ListwiseSettings)}


def test_a_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "llmfair.toml"
    path.write_text('seed = 3\nmodel = ["fake:oracle"]\n[listwise]\nwindow = 10\n')
    assert read_config(path, COMMANDS) == {"listwise": {"seed": 3, "model": ["fake:oracle"], "window": 10}}
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_config(inner) == (path, path.read_bytes())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windw = 3", "windw is not a setting. Did you mean 'window'?"),
        ("[listwise]\nwindw = 3", "listwise.windw is not a setting"),
        ("[lstwise]\nwindow = 3", "[lstwise] is not a command. Did you mean 'listwise'?"),
        ('api_key = "sk-1"', "api_key looks like a secret"),
        ("seed = ", "not valid TOML"),
        ('limit = "two"', "limit is 'two', but takes a whole number"),
        ("limit = true", "limit is True, but takes a whole number"),
        ('read = "loose"', "read is 'loose'"),
        ("model = 5", "model is 5, but takes a list of texts"),
        ("repeat = 1", "repeat is 1, but takes true or false"),
    ],
)
def test_mistakes_in_a_configuration_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "llmfair.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_config(path, COMMANDS)
    assert message in caught.value.message and str(path) in caught.value.message
    assert "sk-1" not in caught.value.message


def test_a_text_for_a_list_a_list_for_a_text_and_a_whole_number_for_a_fraction(tmp_path: Path) -> None:
    path = tmp_path / "llmfair.toml"
    path.write_text('model = "fake:oracle"\nqueries = ["a", "b"]\ntimeout = 5\n')
    found = read_config(path, COMMANDS)["listwise"]
    assert found == {"model": ["fake:oracle"], "queries": "a,b", "timeout": 5.0}
