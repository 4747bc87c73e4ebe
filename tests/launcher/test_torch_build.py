"""Which torch is taken on which machine. No pip runs here: a table answers in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from kvlab.console import CannotStart
from kvlab.launcher.needs import Pin
from kvlab.launcher.pip import Planned
from kvlab.launcher.torch_build import CPU_INDEX, choose, weigh

PIN = Pin("torch", "2.13.0")
INDEX = "https://index.example/"
CUDA_NEEDS = ("filelock", "nvidia-cublas", "triton")
CUDA = Planned("torch", "2.13.0", INDEX + "torch-2.13.0.whl", CUDA_NEEDS)
CPU = Planned("torch", "2.13.0+cpu", INDEX + "torch-2.13.0+cpu.whl", ("filelock", "nvidia-cublas"))
PLAIN = Planned("torch", "2.13.0", INDEX + "torch-2.13.0.whl", ("filelock",))
CUBLAS = Planned("nvidia-cublas", "13.1", INDEX + "nvidia_cublas.whl")
FILELOCK = Planned("filelock", "3.0", INDEX + "filelock.whl")


class FakePip:
    """Answers by the last argument and the index that was asked; counts the questions."""

    def __init__(self, offers: Mapping[str, list[Planned]], cpu_index: bool = False) -> None:
        self.offers = offers
        self.cpu_index = cpu_index
        self.asked: list[tuple[str, ...]] = []

    def plan(self, arguments: Sequence[str], quick: bool = False) -> list[Planned]:
        self.asked.append(tuple(arguments))
        wanted = arguments[-1]
        if CPU_INDEX in arguments:
            assert quick, "an index that may not exist must not be waited for"
            if self.cpu_index:
                return [CPU]
        elif found := self.offers.get(wanted):
            return found[:1] if "--no-deps" in arguments else found
        raise CannotStart(f"no {wanted}")


def sizes(urls: Sequence[str]) -> int | None:
    return 1_000_000_000 * len(urls)


def test_without_a_driver_the_cpu_build_of_pips_own_settings_is_taken():
    pip = FakePip({"torch==2.13.0": [CUDA, CUBLAS, FILELOCK], "torch==2.13.0+cpu": [CPU]})
    choice = choose(PIN, pip, driver=False, weigh=sizes)
    assert (choice.build, choice.arguments) == ("CPU", ("torch==2.13.0+cpu",))
    assert str(choice) == "torch 2.13.0+cpu, CPU build: 1.0 GB to download"


def test_else_the_one_of_pytorchs_index():
    pip = FakePip({"torch==2.13.0": [CUDA, CUBLAS]}, cpu_index=True)
    choice = choose(PIN, pip, driver=False, weigh=sizes)
    assert choice.build == "CPU"
    assert choice.arguments == ("--extra-index-url", CPU_INDEX, "torch==2.13.0+cpu")


def test_else_the_cuda_build_with_its_whole_weight_and_the_reason():
    pip = FakePip({"torch==2.13.0": [CUDA, CUBLAS, FILELOCK]})
    choice = choose(PIN, pip, driver=False, weigh=sizes)
    assert choice.arguments == ("torch==2.13.0",)
    assert str(choice) == (
        "torch 2.13.0, CUDA build: 2.0 GB to download "
        "(no NVIDIA driver answers here, but no CPU build is on offer)"
    )


def test_with_a_driver_the_cuda_build_is_taken_and_no_other_is_asked_for():
    pip = FakePip({"torch==2.13.0": [CUDA, CUBLAS], "torch==2.13.0+cpu": [CPU]}, cpu_index=True)
    choice = choose(PIN, pip, driver=True, weigh=sizes)
    assert (choice.build, choice.arguments) == ("CUDA", ("torch==2.13.0",))
    assert all(question[-1] == "torch==2.13.0" for question in pip.asked)


@pytest.mark.parametrize("driver", [True, False])
def test_a_cpu_build_that_pip_offers_first_needs_one_question(driver: bool):
    pip = FakePip({"torch==2.13.0": [CPU, FILELOCK]})
    choice = choose(PIN, pip, driver, weigh=sizes)
    assert (choice.build, choice.version) == ("CPU", "2.13.0+cpu")
    assert len(pip.asked) == 1


def test_a_platform_whose_plain_build_has_no_cuda_is_not_asked_for_another():
    pip = FakePip({"torch==2.13.0": [PLAIN, FILELOCK]}, cpu_index=True)
    choice = choose(PIN, pip, driver=False, weigh=sizes)
    assert (choice.build, choice.arguments) == ("CPU", ("torch==2.13.0",))


def test_a_size_that_nobody_tells_is_estimated():
    pip = FakePip({"torch==2.13.0": [CUDA, CUBLAS]})
    choice = choose(PIN, pip, driver=True, weigh=lambda urls: None)
    assert str(choice) == "torch 2.13.0, CUDA build: about 2.7 GB to download"


def test_no_torch_at_all_is_pips_own_sentence():
    with pytest.raises(CannotStart, match=r"no torch==2\.13\.0"):
        choose(PIN, FakePip({}), driver=False, weigh=sizes)


def test_files_on_this_machine_are_weighed(tmp_path):
    one, two = tmp_path / "a b.whl", tmp_path / "two.whl"
    one.write_bytes(b"x" * 10)
    two.write_bytes(b"x" * 5)
    assert weigh([one.as_uri(), two.as_uri()]) == 15
    assert weigh([one.as_uri(), (tmp_path / "absent").as_uri()]) is None
