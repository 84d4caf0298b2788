"""`fake:reader`: it answers with the label that most of the items shown bear, and may be told not to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from llmfair.backends.base import BackendOptions
from llmfair.backends.fake import fake
from llmfair.backends.simulated import NOTHING
from llmfair.errors import UsageError
from llmfair.nouns import Chat, Labels, Message, Request, Sampling, Text

COMEDY, CRIME = "comedy", "crime"


def answers(labels: Sequence[str], times: int = 1, **parameters: float) -> list[str]:
    name = ",".join(["reader", *(f"{key}={value}" for key, value in parameters.items())])
    backend = fake(name, BackendOptions())
    chat = Chat((Message("user", "Which?"),), Text(), about={"task": "rag", "labels": list(labels)})

    async def ask() -> list[str]:
        requests = (
            Request(chat, Sampling(max_tokens=8), f"key {number}", "probe") for number in range(times)
        )
        return [(await backend.complete(request)).text for request in requests]

    return asyncio.run(ask())


def test_the_commonest_label_and_of_equals_the_first() -> None:
    assert answers([CRIME, COMEDY, COMEDY]) == [COMEDY]
    assert answers([CRIME, COMEDY]) == [CRIME]
    assert answers(["", CRIME]) == [CRIME]
    assert answers([]) == answers([""]) == [NOTHING]


def test_shares_are_those_injected() -> None:
    shown = [CRIME, COMEDY, COMEDY]
    silent = answers(shown, 1000, follow=0.7).count(NOTHING)
    assert abs(silent - 300) < 60
    first = answers(shown, 1000, position=0.4).count(CRIME)
    assert abs(first - 400) < 65


def test_it_orders_no_lists_and_rankers_read_nothing() -> None:
    with pytest.raises(UsageError, match="fake:reader has no parameter 'listwise'"):
        fake("reader,listwise=1", BackendOptions())
    with pytest.raises(UsageError, match="fake:oracle has no parameter 'follow'"):
        fake("oracle,follow=1", BackendOptions())
    with pytest.raises(UsageError, match="no simulated model 'fake:nobody'"):
        fake("nobody", BackendOptions())
    chat = Chat((Message("user", "Order."),), Text(), about={"task": "listwise"})
    with pytest.raises(UsageError, match="does not answer such questions") as caught:
        asyncio.run(fake("reader", BackendOptions()).complete(Request(chat, Sampling(), "key", "probe")))
    assert "rag" in caught.value.hint


@pytest.mark.parametrize(("label", "output", "says"), [("a", "a", "yes"), ("a", "b", "no"), ("", "", "no")])
def test_an_item_supports_the_answer_that_is_its_label(label: str, output: str, says: str) -> None:
    about = {"task": "support", "label": label, "output": output}
    chat = Chat((Message("user", "Does it?"),), Labels(("yes", "no")), about=about)
    request = Request(chat, Sampling(), "key", "probe")
    assert asyncio.run(fake("reader", BackendOptions()).complete(request)).text == says
