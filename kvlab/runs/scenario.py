"""Scenario files: requests, engine settings and actions that a person writes by hand.

YAML or JSON, checked against kvlab/files/schemas/scenario.schema.json and read with a safe loader. A
scenario names models and shipped scenarios, never code.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from kvlab.engine.actions import Action, SettingChange
from kvlab.engine.config import ENGINE_PRESETS, MOST_BLOCKS, MOST_SLOTS, EngineConfig
from kvlab.engine.policies import VictimFunction, name_of
from kvlab.engine.request import Request, Sampling
from kvlab.errors import BadInput, NotSupportedYet
from kvlab.files.plain_data import parse
from kvlab.files.schema import check


def defaults_of(of: type, without: Sequence[str] = ()) -> dict[str, Any]:
    """What a class of settings takes for granted, as a scenario would write it."""
    defaults = {f.name: f.default for f in fields(of) if f.init and f.default is not MISSING}
    plain = {
        name: list(value) if isinstance(value, tuple) else value for name, value in defaults.items()
    }
    return {name: value for name, value in plain.items() if name not in without}


ENGINE_DEFAULTS: dict[str, Any] = defaults_of(EngineConfig, without=("victim_seed",)) | {
    "preset": None
}
REQUEST_DEFAULTS: dict[str, Any] = defaults_of(Request) | defaults_of(Sampling)
DEFAULTS: dict[str, Any] = {
    "title": "",
    "model": "story",
    "device": "auto",
    "dtype": "float32",
    "actions": [],
    "lesson": {},
}
AUTO = "auto"
"""As `engine.num_blocks`: settled when the scenario runs, from the memory that is there."""
VERBS = ("abort", "preempt", "pause", "resume", "next_victim")  # each names a request
TOLD = ("model", "engine", "requests", "actions")
"""What a lesson tells of: another device or name does not make it untrue."""
SET = "set"
"""The action that names settings instead: `{step: 3, set: {method: swap}}`."""
LARGEST_JSON = 10_000_000  # bytes
LARGEST_YAML = 1_000_000  # reading it takes ten times as long


@dataclass(frozen=True, slots=True)
class Scenario:
    """A checked scenario. `document` holds every key of the contract, defaults filled in; `raw`
    only what was written.

    `base` is the folder from which a relative model folder is found. `victim` is a policy of the
    caller's own, from Python alone: a file names no code.
    """

    document: dict[str, Any]
    raw: dict[str, Any]
    base: Path
    victim: VictimFunction | None = None

    @property
    def name(self) -> str:
        return self.document["name"]

    @property
    def title(self) -> str:
        return self.document["title"] or self.name

    @property
    def model(self) -> str | None:
        """`story`, a folder, or None: scheduling only, tokens are stand-ins."""
        return self.document["model"]

    @property
    def lesson(self) -> dict[str, Any]:
        return self.document["lesson"]

    @property
    def engine(self) -> EngineConfig:
        """The engine's settings. Raises BadInput for values that contradict each other, and for
        `num_blocks: auto` that `with_blocks` has not settled yet."""
        settings = {k: v for k, v in self.document["engine"].items() if k != "preset"}
        own = {"victim": self.victim} if self.victim else {}
        return EngineConfig(**settings | {"unsafe": tuple(settings["unsafe"])} | own)

    def with_victim(self, victim: VictimFunction) -> Scenario:
        """A copy in which this function chooses; the document has its name."""
        engine = self.document["engine"] | {"victim": name_of(victim)}
        return replace(self, document=self.document | {"engine": engine}, victim=victim)

    def requests(self, encode: Any) -> list[Request]:
        """Fresh requests; `encode` turns a text prompt into token ids."""
        return [request_from(raw, encode) for raw in self.document["requests"]]

    @property
    def actions(self) -> list[Action | SettingChange]:
        return [action for raw in self.document["actions"] for action in actions_from(raw)]

    @property
    def sized_at_run(self) -> bool:
        """The pool is to be sized from the memory that is there."""
        return self.document["engine"]["num_blocks"] == AUTO

    def with_blocks(self, num_blocks: int) -> Scenario:
        """A copy whose pool has so many blocks. Raises BadInput where other settings need more."""
        engine = self.document["engine"] | {"num_blocks": num_blocks}
        settled = replace(self, document=self.document | {"engine": engine})
        _ = settled.engine
        return settled

    def with_settings(self, settings: Sequence[str]) -> Scenario:
        """A copy with `PATH=VALUE` settings applied, checked again."""
        document = changed(self.raw, settings)
        return scenario_from(document, self.base, f"scenario {self.name}")


def request_from(raw: dict[str, Any], encode: Any) -> Request:
    """A request of the engine from its checked entry in a scenario."""
    prompt = raw["prompt"]
    sampling = ("temperature", "top_p", "top_k", "seed", "logprobs")
    return Request(
        id=raw["id"],
        prompt=tuple(encode(prompt) if isinstance(prompt, str) else prompt),
        max_tokens=raw["max_tokens"],
        priority=raw["priority"],
        arrival_step=raw["arrival_step"],
        stop=tuple(raw["stop"]),
        ignore_eos=raw["ignore_eos"],
        n=raw["n"],
        sampling=Sampling(**{key: raw[key] for key in sampling}),
    )


def actions_from(raw: dict[str, Any]) -> list[Action | SettingChange]:
    """What the engine is to do for one checked entry of `actions`."""
    step = raw["step"]
    if SET in raw:
        return [SettingChange(step=step, setting=key, value=raw[SET][key]) for key in raw[SET]]
    verb = next(verb for verb in VERBS if verb in raw)
    return [Action(step=step, action=verb, id=raw[verb], method=raw.get("method"))]


def load_scenario(name_or_path: str, settings: Sequence[str] = ()) -> Scenario:
    """A shipped scenario by name, or a file, with `PATH=VALUE` settings applied.

    Raises BadInput, naming file and place, for a scenario that is missing or does not fit.
    """
    path = Path(name_or_path)
    if name_or_path in scenario_names():
        path = Path(str(files("kvlab.runs").joinpath("scenarios", f"{name_or_path}.yaml")))
    what = f"scenario {name_or_path[:200]}"
    if not is_file(path):
        raise BadInput(
            f"{what}: there is no such file, and no shipped scenario of this name; shipped are "
            f"{', '.join(scenario_names())}."
        )
    document = changed(read_document(path, what), settings)
    return scenario_from(document, path.resolve().parent, what)


def is_file(path: Path) -> bool:
    """False, too, for what no file can be called."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def scenario_names() -> list[str]:
    """The names of the shipped scenarios."""
    folder = files("kvlab.runs").joinpath("scenarios")
    return sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".yaml"))


def read_document(path: Path, what: str) -> dict[str, Any]:
    """The raw mapping in a YAML or JSON file. Raises BadInput."""
    try:
        largest = LARGEST_JSON if path.suffix == ".json" else LARGEST_YAML
        if path.stat().st_size > largest:
            raise BadInput(f"larger than {largest:,} bytes; JSON may have {LARGEST_JSON:,}.")
        text = path.read_text(encoding="utf-8-sig")
        document = parse(text, as_json=path.suffix == ".json")
    except OSError as error:
        raise BadInput(f"{what}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{what}: not UTF-8 text ({error.reason} at byte {error.start}).") from None
    except BadInput as error:
        raise BadInput(f"{what}: {error}") from None
    if not isinstance(document, dict):
        raise BadInput(f"{what}: must be a mapping with name, engine and requests.")
    return document


def changed(raw: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A copy with `PATH=VALUE` settings applied. Raises BadInput.

    What a lesson says of its own run, `about` and `narration`, is left out of a changed one: it may
    not be true there.
    """
    document = copy.deepcopy(raw)
    for setting in settings:
        apply_setting(document, setting)
    lesson = document.get("lesson")
    same = all(document.get(key) == raw.get(key) for key in TOLD)
    if not same and isinstance(lesson, dict):
        said = ("about", "narration")
        document["lesson"] = {key: lesson[key] for key in lesson if key not in said}
    return document


def apply_setting(document: dict[str, Any], setting: str) -> None:
    """Change one value: `engine.method=swap`, `requests.B.seed=3`. Raises BadInput."""
    path, equals, text = setting.partition("=")
    if not equals or not path:
        raise BadInput(f"--set {setting}: write it as PATH=VALUE, for example engine.method=swap.")
    try:
        value = parse(text)
    except BadInput as error:
        raise BadInput(f"--set {setting[:200]}: {error}") from None
    *parents, last = path.split(".")
    target: Any = document
    for key in parents:
        target = child(target, key, setting)
    if isinstance(target, list):
        raise BadInput(f"--set {setting}: {path} names no single value.")
    target[last] = value


def child(target: Any, key: str, setting: str) -> Any:
    """The mapping at `key`; in a list, the item with that id."""
    if isinstance(target, list):
        found = [item for item in target if isinstance(item, dict) and item.get("id") == key]
        if not found:
            raise BadInput(f"--set {setting}: there is no {key!r}.")
        return found[0]
    inner = target.setdefault(key, {})
    if not isinstance(inner, dict | list):
        raise BadInput(f"--set {setting}: {key} holds a single value.")
    return inner


def scenario_from(raw: dict[str, Any], base: Path, what: str) -> Scenario:
    """Check a raw document and fill in the defaults. Raises BadInput or NotSupportedYet."""
    check(raw, "scenario", what)
    given = raw["engine"]
    preset = ENGINE_PRESETS.get(given.get("preset") or "", {})
    document = {
        **DEFAULTS,
        **copy.deepcopy(raw),
        "engine": {**ENGINE_DEFAULTS, **preset, **given},
        "requests": [{**REQUEST_DEFAULTS, **request} for request in raw["requests"]],
    }
    scenario = Scenario(document, raw, base)
    try:
        _ = (scenario.with_blocks(MOST_BLOCKS) if scenario.sized_at_run else scenario).engine
        check_size(document["engine"])
        check_ids(document)
        check_samples(document)
    except BadInput as error:
        raise type(error)(f"{what}: {error}") from None
    return scenario


def check_size(engine: dict[str, Any]) -> None:
    """The pools can be shown, slot by slot."""
    for name in ("num_blocks", "host_blocks"):
        if engine[name] != AUTO and engine[name] * engine["block_size"] > MOST_SLOTS:
            raise BadInput(
                f"engine.{name} = {engine[name]} with engine.block_size = {engine['block_size']} is "
                f"more than the {MOST_SLOTS:,} slots that a run can be shown with; take fewer or "
                "smaller blocks."
            )


def check_ids(document: dict[str, Any]) -> None:
    """Every request has its own id; every action has one verb and names a request, or settings."""
    ids = [request["id"] for request in document["requests"]]
    for id, times in Counter(ids).items():
        if times > 1:
            raise BadInput(f"requests: the id {id!r} is used twice; give each its own.")
    for place, action in enumerate(document["actions"]):
        verbs = [verb for verb in (*VERBS, SET) if verb in action]
        if len(verbs) != 1:
            raise BadInput(f"actions.{place}: name exactly one of {', '.join((*VERBS, SET))}.")
        if verbs != [SET] and action[verbs[0]] not in ids:
            raise BadInput(f"actions.{place}: no request has the id {action[verbs[0]]!r}.")
        if "method" in action and verbs != ["preempt"]:
            raise BadInput(f"actions.{place}: method goes with preempt alone.")


def check_samples(document: dict[str, Any]) -> None:
    """Forks share their parent's blocks, so that a reservation for each cannot be kept."""
    for request in document["requests"]:
        if request["n"] > 1 and document["engine"]["allocation"] == "reserve_max":
            raise NotSupportedYet(
                f"requests.{request['id']}.n = {request['n']} together with engine.allocation = "
                "reserve_max is not supported yet; use on_demand."
            )
