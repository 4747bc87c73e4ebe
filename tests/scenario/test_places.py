"""What a run names on the disk: refused in one sentence, and nothing of the user's is written over."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvlab.cli import main
from kvlab.errors import BadInput
from kvlab.models.places import find_model
from kvlab.trace.document import Trace

SCENARIO = """name: mine
model: null
engine: {num_blocks: 4, block_size: 4}
requests: [{id: A, prompt: [1, 2, 3], max_tokens: 2}]
"""


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x", "x" * 5_000, "a\0b"])
def test_a_model_that_no_disk_can_hold_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="model:"):
        find_model(name)


def test_the_trace_does_not_replace_the_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    assert main(["run", str(file), "--json", str(file)]) == 2
    assert "that is the scenario itself" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == SCENARIO


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    file, real, link = (tmp_path / name for name in ("mine.yaml", "real.json", "link.json"))
    file.write_text(SCENARIO, encoding="utf-8")
    real.write_text("old", encoding="utf-8")
    link.symlink_to(real)
    assert main(["run", str(file), "--json", str(link)]) == 0
    assert link.is_symlink()
    assert Trace.read(real).name == "mine"


@pytest.mark.parametrize("kind", [[], {}, None, 3])
def test_an_event_of_no_kind_is_refused(kind: object, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    assert main(["run", str(file), "--json", str(tmp_path / "t.json")]) == 0
    document = Trace.read(tmp_path / "t.json").document
    document["events"][0]["kind"] = kind
    with pytest.raises(BadInput, match=r"events\.0"):
        Trace.from_json(document)
