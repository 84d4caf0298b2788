"""FAIR-QR: queries refined until the groups on a page meet a target, where the run's data are a collection."""

from __future__ import annotations

from shlex import quote

from llmfair.audits.kind import kind_of
from llmfair.audits.subject import Subject
from llmfair.errors import UsageError
from llmfair.mitigation.remedy import Asking, Audit
from llmfair.mitigation.unmitigated import Unmitigated
from llmfair.registry import register

TASK = "refine"
SIMULATED = "fake:refiner"


@register("remedy", "fair-qr")
class FairQr(Asking):
    title = "FAIR-QR"
    does = (
        "Each query is refined with keywords of the model until the groups on its page are near those of the relevant "
        "documents (Chen and Fang 2025). Its page is found in the whole collection, so it has other documents than the "
        "run's lists: figures of a page alone compare, nDCG@20 and AWRF@20."
    )

    def audit(self, run: Unmitigated) -> Audit:
        kind, of = kind_of(TASK), run.settings
        if not run.prompted:
            raise UsageError(
                f"{run.model} writes no keywords.", f"llmfair refine -d {quote(of.dataset)} -m MODEL"
            )
        # a simulated model of lists writes no keywords
        spec = SIMULATED if run.simulated else run.model
        settings = kind.settings.make(
            dataset=of.dataset,
            attribute=of.attribute,
            queries=",".join(run.orders),
            allow_missing=of.allow_missing,
            model=(spec,),
            **{name: getattr(of, name) for name in ("base_url", "server_name", "system", "extra")},
            **{name: getattr(of, name) for name in ("template_arg", "backend_arg", "adapter")},
        )
        remarks = [f"keywords are {SIMULATED}'s, a simulation"] if spec == SIMULATED else []
        return Audit(kind, settings, Subject(spec, of.adapter), "fair-qr", own_lists=True, remarks=remarks)
