"""Which torch is taken on which machine. No pip runs here: a table answers in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

from kvlab.errors import CannotStart
from kvlab.launcher import torch_build
from kvlab.launcher.needs import Pin
from kvlab.launcher.pip import Planned
from kvlab.launcher.torch_build import CPU_INDEX, choose

PIN = Pin("torch", "2.13.0")
INDEX = "https://index.example/"
CUDA_NEEDS = ("filelock", "nvidia-cublas", "triton")
CUDA = Planned("2.13.0", INDEX + "torch-2.13.0.whl", CUDA_NEEDS)
CPU = Planned("2.13.0+cpu", INDEX + "torch-2.13.0+cpu.whl", ("filelock", "nvidia-cublas"))
PLAIN = Planned("2.13.0", INDEX + "torch-2.13.0.whl", ("filelock",))


@pytest.fixture(autouse=True)
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_build, "sys", SimpleNamespace(platform="linux"))


class FakePip:
    """Answers by the last argument and the index that was asked; counts the questions."""

    def __init__(self, offers: Mapping[str, Planned], cpu_index: bool = False) -> None:
        self.offers = offers
        self.cpu_index = cpu_index
        self.asked: list[tuple[str, ...]] = []

    def plan(self, arguments: Sequence[str], quick: bool = False) -> Planned:
        self.asked.append(tuple(arguments))
        wanted = arguments[-1]
        if CPU_INDEX in arguments:
            assert quick, "an index that may not exist must not be waited for"
            if self.cpu_index:
                return CPU
        elif found := self.offers.get(wanted):
            return found
        raise CannotStart(f"no {wanted}")


def test_without_a_driver_the_cpu_build_of_pips_own_settings_is_taken():
    pip = FakePip({"torch==2.13.0": CUDA, "torch==2.13.0+cpu": CPU})
    choice = choose(PIN, pip, driver=False)
    assert (choice.build, choice.arguments) == ("CPU", ("torch==2.13.0+cpu",))
    assert str(choice) == "torch 2.13.0+cpu, CPU build: about 200 MB to download"


def test_else_the_one_of_pytorchs_index():
    choice = choose(PIN, FakePip({"torch==2.13.0": CUDA}, cpu_index=True), driver=False)
    assert choice.build == "CPU"
    assert choice.arguments == ("--extra-index-url", CPU_INDEX, "torch==2.13.0+cpu")


def test_else_the_cuda_build_and_the_reason():
    choice = choose(PIN, FakePip({"torch==2.13.0": CUDA}), driver=False)
    assert choice.arguments == ("torch==2.13.0",)
    assert str(choice) == (
        "torch 2.13.0, CUDA build: about 2.7 GB to download "
        "(no NVIDIA driver answers here, but no CPU build is on offer)"
    )


def test_with_a_driver_the_cuda_build_is_taken_and_no_other_is_asked_for():
    pip = FakePip({"torch==2.13.0": CUDA, "torch==2.13.0+cpu": CPU}, cpu_index=True)
    choice = choose(PIN, pip, driver=True)
    assert (choice.build, choice.arguments) == ("CUDA", ("torch==2.13.0",))
    assert all(question[-1] == "torch==2.13.0" for question in pip.asked)


@pytest.mark.parametrize("driver", [True, False])
def test_a_cpu_build_that_pip_offers_first_needs_one_question(driver: bool):
    pip = FakePip({"torch==2.13.0": CPU})
    choice = choose(PIN, pip, driver)
    assert (choice.build, choice.torch.version) == ("CPU", "2.13.0+cpu")
    assert len(pip.asked) == 1


@pytest.mark.parametrize(
    ("platform", "offered"), [("linux", PLAIN), ("darwin", PLAIN), ("darwin", CUDA)]
)
def test_a_platform_whose_plain_build_has_no_cuda_is_not_asked_for_another(
    platform: str, offered: Planned, monkeypatch: pytest.MonkeyPatch
):
    """A wheel for a Mac may name NVIDIA's parts as well: as Linux's."""
    monkeypatch.setattr(torch_build, "sys", SimpleNamespace(platform=platform))
    choice = choose(PIN, FakePip({"torch==2.13.0": offered}, cpu_index=True), driver=False)
    assert (choice.build, choice.arguments) == ("CPU", ("torch==2.13.0",))


def test_a_file_of_this_machine_is_not_downloaded():
    here = Planned("2.13.0+cpu", "file:///wheels/torch.whl")
    choice = choose(PIN, FakePip({"torch==2.13.0": here}), driver=False)
    assert str(choice).endswith("CPU build: about 200 MB from this machine's disk")


def test_no_torch_at_all_is_pips_own_sentence():
    with pytest.raises(CannotStart, match=r"no torch==2\.13\.0"):
        choose(PIN, FakePip({}), driver=False)
