"""What a scenario runs on in a browser's tab, and how large it may be there."""

from __future__ import annotations

from contextlib import nullcontext

from kvlab.errors import BadInput
from kvlab.export.tab.runner import Call, TabProbe, TabRunner
from kvlab.runs.run import MOST_PROBED_SLOTS, Ground, stand_ins, with_enough_blocks
from kvlab.runs.scenario import Scenario

MODEL = "story"
DTYPE = "float32"


def ground_in_tab(scenario: Scenario, call: Call, *, on_card: bool = True) -> Ground:
    """The bundled model with fresh pools, or stand-ins for `model: null`. They are on the visitor's
    graphics card where there is one, `on_card` and the scenario does not say `device: cpu`.

    Raises BadInput for another model, dtype or device: they are not in the tab.
    """
    if scenario.model is None:
        return stand_ins(scenario)
    document = scenario.document
    for key, wanted in (("model", {MODEL}), ("dtype", {DTYPE}), ("device", {"auto", "cpu"})):
        if document[key] not in wanted:
            raise BadInput(
                f"{key}: {str(document[key])[:40]} is not in a browser's tab, which computes "
                f"{MODEL} in {DTYPE}; `kvlab run` on a machine of your own takes it."
            )
    memory, runner = None, TabRunner(call, card_wanted=on_card and document["device"] == "auto")
    if scenario.sized_at_run:
        scenario, memory = with_enough_blocks(scenario, runner.encode, runner.context)
    settings = scenario.engine
    runner.begin(
        num_blocks=settings.num_blocks,
        block_size=settings.block_size,
        host_blocks=settings.host_blocks,
        keeps_overwritten="write_before_copy_out" in settings.unsafe,
    )
    small = settings.num_blocks * settings.block_size <= MOST_PROBED_SLOTS
    about, costed = runner.about, runner.costed
    return Ground(
        scenario=scenario,
        runner=runner,
        probe=TabProbe(runner) if small else None,
        encode=runner.encode,
        token_text=runner.token_text,
        run={
            "device": about["device"],
            "device_name": about["device_name"],
            "dtype": DTYPE,
            "torch": None,
        },
        model={
            "name": costed.name,
            "stand_in": False,
            "layers": costed.layers,
            "kv_heads": costed.kv_heads,
            "head_dim": costed.head_dim,
            "context": runner.context,
            "kv_bytes_per_token": costed.kv_bytes_per_token,
        },
        bytes_per_block=costed.kv_bytes_per_token * settings.block_size,
        threads=nullcontext,
        clock=runner.clock,
        warm_up=lambda rows: None,
        memory=memory,
    )
