"""Settings: declared once, read by one function, from four places in a fixed order of precedence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llmfair
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.cli.options import FileValue, find_config, read_config, settings_of_commands
from llmfair.errors import UsageError
from llmfair.settings import value_of
from llmfair.settings.declaration import CommandSettings, Limits, default_of, hints_of, seconds
from tests.cli.command import refuses

COMMANDS = {"listwise": get_type_hints(ListwiseSettings)}
CLASSES = [settings for classes in settings_of_commands().values() for settings in classes]


def test_the_paper_preset_and_a_flag_over_it() -> None:
    paper = ListwiseSettings.make("paper")
    assert (paper.window, paper.step, paper.passes, paper.orders, paper.repeat) == (5, 1, 1, 1, False)
    assert ListwiseSettings.make("paper", step=2).step == 2


def wrong_values(item: Field[Any], hint: Any) -> Iterator[Any]:
    """What the declaration of a setting excludes: other types, numbers beyond its bounds, texts of no form."""
    least, most, above, below, _ = item.metadata["limits"]
    wanted = next((part for part in get_args(hint) if part is not type(None)), hint)
    wanted = hint if get_origin(hint) in (Literal, tuple) else wanted
    yield object()
    if wanted in (int, float):
        yield from ("x", float("nan"), True)
        yield from (bound for bound in (above, below) if bound is not None)
        yield from [least - 1] if least is not None else []
        yield from [most + 1] if most is not None else []
    elif wanted is bool:
        yield from (2, "perhaps")
    elif get_origin(wanted) is tuple:
        yield from (5, ["a\0b"])
    else:
        yield from ("a\0b", 5)
        yield from ["neither this nor that"] if get_origin(wanted) is Literal or item.name == "band" else []


@pytest.mark.parametrize("settings", CLASSES, ids=lambda settings: settings.__name__)
def test_every_setting_refuses_what_its_declaration_excludes(settings: type[CommandSettings]) -> None:
    hints = hints_of(settings)
    varied = getattr(settings, "varied", ())  # which a study has no say in
    for item in (item for item in settings.given() if item.name not in varied):
        flag = "--" + item.name.replace("_", "-")
        for value in wrong_values(item, hints[item.name]):
            with pytest.raises(UsageError) as error:
                settings.make(**{item.name: value})
            assert error.value.message.startswith(f"{flag} is ") and ", but takes " in error.value.message
            assert error.value.hint
        assert settings.value_from(item, default_of(item), flag) == default_of(item), "every default is taken"


@given(
    value=st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
    text=st.booleans(),
)
@pytest.mark.parametrize(
    "hint", [int, float, bool, str, Path, int | None, Literal["a", "b"], tuple[str, ...]]
)
def test_a_value_is_taken_or_refused_in_a_sentence(hint: Any, value: Any, text: bool) -> None:
    limits = Limits(least=0, most=10) if hint in (int, float) else Limits()
    try:
        taken = value_of(value, hint, "--x", limits, text=text)
    except UsageError as error:
        assert error.message.startswith("--x is ")
    else:
        assert value_of(taken, hint, "--x", limits) == taken
        assert hint not in (int, float) or 0 <= taken <= 10


WRONG = [
    # command, setting, as a text, as TOML and Python have it, what it takes
    ("listwise", "limit", "0", 0, "a whole number from 1 to 1,000,000,000"),
    ("listwise", "window", "x", "x", "a whole number from 2 to 10,000"),
    ("listwise", "max_wait", "soon", "soon", "a time such as 90s, 30m or 1h"),
    ("listwise", "read", "loose", "loose", "one of strict, rankgpt"),
    ("listwise", "band", "0.8", "0.8", "preference odds from 0.01 to 1, then from 1 to 100, as in 0.8..1.25"),
    ("listwise", "repeat", "perhaps", 2, "true or false"),
    ("pairwise", "conditions", "relevance", "relevance", "relevance strata with commas between: relevant, irrelevant or both"),
    ("plan_listwise", "odds", "1", 1, "odds other than 1, which is parity, above 0"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "name", "text", "value", "takes"), WRONG, ids=[row[1] for row in WRONG])
def test_a_wrong_value_is_named_as_it_was_given(
    command: str, name: str, text: str, value: Any, takes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one sentence, wherever it comes from: a flag, a variable, a file, Python."""
    words, flag, variable = command.split("_"), "--" + name.replace("_", "-"), f"LLMFAIR_{name.upper()}"
    sentence = rf"is '?{re.escape(text)}(\.0)?'?, but takes {re.escape(takes)}\."
    if name != "repeat":  # a switch has no value
        assert re.search(f"Error: {flag} {sentence}", refuses(flag, *words, flag, text).err)
    monkeypatch.setenv(variable, text)
    assert re.search(f"Error: {variable} {sentence}", refuses(variable, *words).err)
    monkeypatch.delenv(variable)
    sentence = sentence.replace("perhaps", "2")
    Path("llmfair.toml").write_text(f"[{words[0]}]\n{name} = {value!r}\n")
    assert re.search(f"llmfair.toml: {words[0]}.{name} {sentence}", refuses(name, *words).err)
    call = getattr(llmfair, command if len(words) > 1 else f"audit_{command}")
    with pytest.raises(UsageError, match=f"^{name} {sentence}"):
        call(**{name: value})
    assert not Path("runs").exists()


def test_settings_that_do_not_go_together_are_named_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMFAIR_STEP", "9")
    assert "Error: LLMFAIR_STEP 9 is larger than --window 5:" in refuses("", "listwise", "--window", "5").err
    monkeypatch.delenv("LLMFAIR_STEP")
    Path("llmfair.toml").write_text("[listwise]\nstep = 9\n")
    path = Path("llmfair.toml").absolute()
    assert f"Error: {path}: listwise.step 9 is larger" in refuses("", "listwise", "--window", "5").err
    with pytest.raises(UsageError, match=r"^step 9 is larger than window 5"):
        llmfair.audit_listwise(window=5, step=9)


@pytest.mark.parametrize("name", ["model", "strategy"])
def test_a_list_that_names_none_is_refused(name: str) -> None:
    Path("llmfair.toml").write_text(f"{name} = []\n")
    refuses(f"llmfair.toml: {name} names none", "listwise", "--dry-run")
    empty: dict[str, Any] = {name: []}
    with pytest.raises(UsageError, match=f"^{name} names none"):
        llmfair.plan_listwise(**empty)


def test_every_whole_number_has_bounds() -> None:
    """A new flag says how much of it a machine can hold and a lifetime can take."""
    unbounded = [
        f"{settings.__name__} --{item.name}"
        for settings in CLASSES
        for item in fields(settings)
        if int in (hint := hints_of(settings)[item.name], *get_args(hint))
        if item.metadata["limits"].most is None
    ]
    assert not unbounded


def test_what_names_a_run_and_what_does_not() -> None:
    base = ListwiseSettings.make()
    elsewhere: dict[str, Any] = {"workers": 3, "retries": 1, "measures": "P@5"}
    elsewhere |= {"max_calls": 5, "level": 0.9, "limit": 3}
    for name, value in {**elsewhere, "output": Path("x"), "dataset": "elsewhere"}.items():
        assert ListwiseSettings.make(**{name: value}).of_result() == base.of_result(), name
    for change in ({"seed": 1}, {"window": 10}, {"read": "rankgpt"}, {"temperature": 1.0}, {"words": 5}):
        assert ListwiseSettings.make(**change).of_result() != base.of_result(), change


@pytest.mark.parametrize(("text", "value"), [("90", 90.0), ("90s", 90.0), ("30m", 1800.0), ("1.5h", 5400.0)])
def test_times(text: str, value: float) -> None:
    assert seconds(text) == value


def test_a_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "llmfair.toml"
    path.write_text('\ufeffseed = 3\nmodel = ["fake:oracle"]\n[listwise]\nwindow = 10\n')
    assert read_config(path, path.read_bytes(), COMMANDS) == {
        "listwise": {
            "seed": FileValue(3, f"{path}: seed"),
            "model": FileValue(["fake:oracle"], f"{path}: model"),
            "window": FileValue(10, f"{path}: listwise.window"),
        }
    }
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_config(inner) == (path, path.read_bytes())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windw = 3", "windw is not a setting. Did you mean 'window'?"),
        ("[listwise]\nwindw = 3", "listwise.windw is not a setting"),
        ("[listwise.window]\nstep = 3", "listwise.window is not a setting"),
        ("[lstwise]\nwindow = 3", "[lstwise] is not a command. Did you mean 'listwise'?"),
        ('api_key = "sk-1"', "api_key looks like a secret"),
        ("seed = ", "not valid TOML"),
    ],
)
def test_mistakes_in_a_configuration_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "llmfair.toml"
    with pytest.raises(UsageError) as caught:
        read_config(path, text.encode(), COMMANDS)
    assert message in caught.value.message and str(path) in caught.value.message
    assert "sk-1" not in caught.value.message


def test_one_for_several_several_for_one_and_a_whole_number_for_a_fraction() -> None:
    settings = ListwiseSettings.make(model="fake:oracle", queries=["a", "b"], timeout=5, output="x")
    assert (settings.model, settings.queries, settings.timeout) == (("fake:oracle",), "a,b", 5.0)
    assert settings.output == Path("x")


@pytest.mark.parametrize("band", ["0.5..0.9", "1.1..2", "0.001..1.25", "0.8..1000", "1.25..0.8"])
def test_a_band_is_around_parity(band: str) -> None:
    with pytest.raises(UsageError, match="--band"):
        ListwiseSettings.make(band=band)
