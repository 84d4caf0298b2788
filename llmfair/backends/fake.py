"""Simulated models: offline, seeded, with a bias of known size. They read what a chat is about, not its words.

`fake:oracle` answers by relevance, then input order; `fake:random` by chance; `fake:biased` with injected preferences.
`fake:reader` generates for `llmfair rag`, `fake:refiner` and `fake:name` write keywords for `llmfair refine`.
Parameters follow after commas: `fake:biased,listwise=-0.5,malformed=0.1`. Of an attribute with several groups the
model prefers none unless one is named: `fake:biased,behind=Black` adds `listwise` and `pairwise` to that group's log
odds, and puts it ahead where they are above 0. Every answer is drawn from its request's key, so answers depend neither
on order nor on how many are in flight.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Iterable, Mapping

from numpy.random import default_rng

from llmfair import registry
from llmfair.backends.base import BackendOptions, NoBackend, RateLimited
from llmfair.backends.simulated import Answerer, Injected
from llmfair.errors import UsageError, did_you_mean
from llmfair.nouns import Completion, Finish, Request, Side
from llmfair.registry import register

PARAMETERS = {
    "malformed": 0.01,  # share of damaged answers, unless a form says otherwise
    "latency": 0.0,  # seconds before each answer
    "rate_429": 0.0,  # share of attempts refused as rate limited
}
"""Those of every form."""
SHARES, SCALES, TIMING = {"malformed", "rate_429"}, {"latency"}, {"latency", "rate_429"}


@register("backend", "fake")
def fake(name: str, options: BackendOptions) -> Fake:
    """A simulated model by name and parameters. Raises UsageError for an unknown one."""
    model, *assignments = name.split(",")
    everybody = answerers()
    forms = {form: answerer for form, answerer in everybody.items() if model in answerer.plays}
    if not forms:
        models = models_of(everybody.values())
        raise UsageError(
            f"no simulated model 'fake:{model}'.{did_you_mean(model, models)}",
            f"known: {', '.join('fake:' + name for name in models)}",
        )
    always, further = defaults(model, forms)
    parameters = {**always, **further}
    shares = SHARES.union(*(form.shares for form in forms.values()))
    scales = SCALES.union(*(form.scales for form in forms.values()))
    prefers, behind = any(form.prefers for form in forms.values()), str(Side.PROTECTED)
    for assignment in assignments:
        key, _, text = assignment.partition("=")
        if prefers and key == "behind":
            behind = text
            continue
        if key not in parameters:
            raise UsageError(
                f"fake:{model} has no parameter '{key}'.{did_you_mean(key, parameters)}",
                f"known: {', '.join([*parameters, *['behind'] * prefers])}",
            )
        try:
            parameters[key] = float(text)
        except ValueError:
            parameters[key] = math.nan
        least, most = (0.0 if key in shares | scales else -math.inf), (1.0 if key in shares else math.inf)
        if not (math.isfinite(parameters[key]) and least <= parameters[key] <= most):
            what = "share of 1" if key in shares else "number from 0" if key in scales else "number"
            raise UsageError(f"fake:{model}: {key}={text} is not a {what}.", f"for example {key}=0.5")
    return Fake(Injected(model, parameters, options.seed, behind), forms, further)


def answerers() -> dict[str, Answerer]:
    return {name: registry.lookup("simulated", name)() for name in registry.names("simulated")}


def models_of(answerers: Iterable[Answerer]) -> list[str]:
    """The models that these play, each once."""
    return [*dict.fromkeys(model for answerer in answerers for model in answerer.plays)]


def defaults(model: str, forms: Mapping[str, Answerer]) -> tuple[dict[str, float], dict[str, float]]:
    """A model's parameters: those that its identity always names, and those that it names where they differ."""
    always = dict[str, float]()
    further = dict[str, float]()
    for form in forms.values():
        for key, value in form.parameters.get(model, {}).items():
            (always if key in form.named else further)[key] = value
    always |= {key: value for key, value in PARAMETERS.items() if key not in always}
    return always, {key: value for key, value in further.items() if key not in always}


class Fake(NoBackend):
    """A simulated model: it answers each form of question as that form's answerer says."""

    max_workers = 64
    reads_about = True

    def __init__(
        self, injected: Injected, forms: Mapping[str, Answerer], further: Mapping[str, float]
    ) -> None:
        self.injected, self.forms = injected, forms
        self.capabilities = frozenset({"constrain", "seed", "system_role"})
        if any(form.prefers for form in forms.values()):
            self.capabilities |= {"margins", "forced_margins"}
        # By default further parameters are not named: a run over lists is the same, whatever forms there are.
        parameters = ",".join(
            f"{key}={value:g}"
            for key, value in sorted(injected.parameters.items())
            if key not in TIMING and value != further.get(key)
        )
        behind = "" if injected.behind == Side.PROTECTED else f" behind={injected.behind}"
        self.identity = f"fake {injected.model} {parameters}{behind} seed={injected.seed}"
        self.model = f"fake:{injected.model}"
        self._attempts = dict[str, int]()

    async def complete(self, request: Request) -> Completion:
        injected, chat = self.injected, request.chat
        stream = [injected.seed, zlib.crc32(request.key.encode())]
        rng = default_rng(stream)
        if injected.parameters["latency"]:
            await asyncio.sleep(injected.parameters["latency"])
        if refused := injected.parameters["rate_429"]:
            attempt = self._attempts[request.key] = self._attempts.get(request.key, 0) + 1
            if default_rng([*stream, attempt]).random() < refused:
                raise RateLimited
        form = self.forms.get(chat.about.get("task", ""))
        if form is None:
            raise UsageError(
                f"{self.model} does not answer such questions.",
                f"it answers those of {' and '.join(self.forms)}; choose another model",
            )
        text, finish = form.answer(chat, injected, rng), Finish.STOP
        if not request.sampling.constrain and rng.random() < injected.parameters["malformed"]:
            damaged = form.damaged(chat, text)
            text, finish = damaged[int(rng.integers(len(damaged)))]
        measured = request.sampling.margins and finish is Finish.STOP
        margins = form.margins(chat, injected, default_rng(stream)) if measured else None
        return Completion(text, finish, logprobs=margins, model=self.model)
