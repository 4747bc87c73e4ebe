"""The race: what each step of two runs spends and says, in both languages, and as a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kvlab.course.compare import both_ways
from kvlab.course.record import recorded
from kvlab.draw.race import Race, race_of
from kvlab.errors import BadInput
from kvlab.export.page import PageOptions, race_page
from kvlab.export.source import both_of
from kvlab.lab import notebook as lab
from kvlab.trace.speech import Speech

STORY = (recorded("figure-5"), recorded("figure-4"))


def test_the_storys_race_has_the_articles_numbers():
    race = race_of(STORY, ("Recompute", "Swap"), Speech())
    left, right = race["sides"]
    assert [one["computed"] for one in left["steps"]] == [14, 16, 17, 18, 19, 20, 29, 30]
    assert [one["computed"] for one in right["steps"]] == [14, 16, 17, 18, 19, 20, 21, 22]
    assert left["steps"][6]["model"] == [{"id": "B", "tokens": 9, "again": 8}]
    assert right["steps"][2]["copies"] == [{"id": "B", "way": "out", "pairs": [[2, 0], [3, 1]]}]
    assert right["steps"][6]["copies"] == [{"id": "B", "way": "in", "pairs": [[0, 3], [1, 0]]}]
    assert [one["moved"] for one in right["steps"]] == [0, 0, 20_480, 20_480, 20_480, 20_480] + [
        40_960
    ] * 2
    assert [one["held"].get("B", 0) for one in left["steps"]] == [0, 0, 1, 2, 3, 4, 0, 0]
    assert "".join(one["says"].get("B", "") for one in left["steps"]) == " near the kitchen window"
    assert race["readers"] == ["A", "B"]
    assert race["most"] == {"computed": 30, "moved": 40_960}


def test_it_speaks_german_and_says_its_numbers_so():
    race = Race(*STORY, language="de")
    assert race.race["sides"][0]["name"] == "Neu berechnen"
    assert "40.960 Bytes" in race.race["verdict"]
    race.speak(Speech("en"))
    assert "40,960 bytes" in race.race["verdict"]


def test_readers_without_a_kernel_get_both_texts():
    data, _ = Race(*STORY)._repr_mimebundle_()
    assert "B: near the kitchen window" in data["text/html"]
    assert "30 tokens through the model" in data["text/plain"]


@pytest.mark.parametrize(("language", "says"), [("en", "Race: Recompute"), ("de", "Wettlauf: Neu")])
def test_a_race_as_one_file_asks_nobody_for_anything(language: str, says: str):
    text = race_page(*both_of("figure-4"), PageOptions(language))
    assert f'<html lang="{language}">' in text
    assert says in text
    assert "default-src 'none'" in text
    found = re.search(r'id="kvlab-run">(.*?)</script>', text)
    assert found is not None
    assert len(json.loads(found[1])["race"]["sides"]) == 2


def test_a_recorded_trace_alone_has_no_race(tmp_path: Path):
    path = tmp_path / "one.json"
    STORY[0].write(path)
    with pytest.raises(BadInput, match="a race needs two"):
        both_of(str(path))


def test_a_notebook_races_what_it_is_given():
    assert lab.race(*STORY).race["title"] == "Race: Recompute and Swap"
    named = lab.race(STORY[0], STORY[0], names=("one", "other"))
    assert [side["name"] for side in named.race["sides"]] == ["one", "other"]
    with pytest.raises(BadInput, match="two runs"):
        lab.race(STORY[0])


def test_a_swap_without_a_cpu_pool_gets_one():
    settings = ["engine.host_blocks=0"]
    assert both_ways("figure-5", settings)[1].document["pool"]["host_blocks"] == 4
