"""What cannot be loaded is refused in one sentence that names the file and the trouble.

Each case breaks one thing in a copy of the bundled model; the words to expect name what was broken.
"""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvlab.errors import BadInput
from kvlab.models.loading import STORY, choose_device, load_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working copy of the bundled model."""
    copy = tmp_path / "model"
    copy.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(STORY / name, copy / name)
    return copy


def refusal(folder: Path | str, **options: Any) -> str:
    with pytest.raises(BadInput) as caught:
        load_model(str(folder), **{"device": "cpu"} | options)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def edit_config(folder: Path, drop: tuple[str, ...] = (), **values: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in drop:
        del config[key]
    path.write_text(json.dumps(config | values), encoding="utf-8")


def edit_weights(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replace tensors, add them, or (None) take them out; `__` stands for a dot."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in changes.items():
        key = name.replace("__", ".")
        if tensor is None:
            del tensors[key]
        else:
            tensors[key] = tensor
    save_file(tensors, path)


def test_the_copy_itself_loads(folder: Path) -> None:
    loaded = load_model(str(folder), device="cpu")
    assert (loaded.dtype, loaded.device.type) == (torch.float32, "cpu")
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_get_the_dtype_that_was_asked_for(dtype: str) -> None:
    loaded = load_model("story", device="cpu", dtype=dtype)
    wanted = getattr(torch, dtype)
    assert {p.dtype for p in loaded.model.parameters()} == {wanted}
    assert loaded.dtype is wanted


def test_a_relative_folder_is_found_from_the_scenarios_folder(folder: Path) -> None:
    loaded = load_model("model", device="cpu", base=folder.parent)
    assert loaded.config.vocab_size == 1024


def test_what_is_not_a_folder(tmp_path: Path) -> None:
    assert "nowhere is not a folder" in refusal(tmp_path / "nowhere")
    file = tmp_path / "file.txt"
    file.write_text("text")
    assert "file.txt is not a folder" in refusal(file)
    assert "config.json" in refusal("no-such-model")


def test_a_folder_that_is_no_model_folder(tmp_path: Path) -> None:
    message = refusal(tmp_path)
    assert str(tmp_path) in message
    assert "config.json" in message


def test_no_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no *.safetensors" in refusal(folder)


class Trap:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_a_pickle_alone_is_refused_and_never_opened(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    trap = folder / "sprung"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": Trap(trap)}))
    pickle.loads((folder / "pytorch_model.bin").read_bytes())["w"].close()
    assert trap.exists()  # the trap works
    trap.unlink()
    assert "no *.safetensors" in refusal(folder)
    assert not trap.exists()


def test_code_in_a_model_folder_is_never_run(folder: Path) -> None:
    trap = folder / "sprung"
    (folder / "modeling_story.py").write_text(f"open({str(trap)!r}, 'w')\n")
    (folder / "__init__.py").write_text(f"open({str(trap)!r}, 'w')\n")
    edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling_story.Story"})
    load_model(str(folder), device="cpu")
    assert not trap.exists()


def test_a_pickle_that_calls_itself_safetensors(folder: Path) -> None:
    trap = folder / "sprung"
    (folder / "model.safetensors").write_bytes(pickle.dumps({"w": Trap(trap)}))
    assert "model.safetensors is not a readable safetensors file" in refusal(folder)
    assert not trap.exists()


def test_safetensors_that_were_cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100_000])
    assert "model.safetensors is not a readable safetensors file" in refusal(folder)


def test_a_missing_tensor(folder: Path) -> None:
    edit_weights(folder, model__layers__2__mlp__up_proj__weight=None)
    assert "model.layers.2.mlp.up_proj.weight is missing" in refusal(folder)


def test_a_missing_embedding_of_a_tied_model(folder: Path) -> None:
    edit_weights(folder, model__embed_tokens__weight=None)
    assert "model.embed_tokens.weight is missing" in refusal(folder)


def test_a_missing_head_of_an_untied_model(folder: Path) -> None:
    edit_config(folder, tie_word_embeddings=False)
    assert "lm_head.weight is missing" in refusal(folder)


def test_a_tensor_of_the_wrong_shape(folder: Path) -> None:
    edit_weights(folder, model__norm__weight=torch.ones(191))
    message = refusal(folder)
    assert "model.norm.weight" in message
    assert "(191,)" in message
    assert "(192,)" in message


def test_a_config_that_does_not_fit_the_weights(folder: Path) -> None:
    edit_config(folder, vocab_size=1000)
    message = refusal(folder)
    assert "(1024, 192)" in message
    assert "(1000, 192)" in message


def test_a_tensor_that_has_no_place(folder: Path) -> None:
    edit_weights(folder, model__layers__0__self_attn__q_norm__weight=torch.ones(32))
    assert "model.layers.0.self_attn.q_norm.weight has no place" in refusal(folder)


@pytest.mark.parametrize("text", ["{", "not json", "", "\x00", "[" * 100_000])
def test_a_config_that_is_not_json(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    assert "config.json is not valid JSON" in refusal(folder)


def test_a_config_that_is_no_object(folder: Path) -> None:
    (folder / "config.json").write_text("[1, 2]")
    assert "config.json must hold a JSON object" in refusal(folder)


@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
    ],
)
def test_a_config_that_lacks_a_key(folder: Path, key: str) -> None:
    edit_config(folder, (key,))
    assert f"config.json lacks the key '{key}'" in refusal(folder)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, "rope_type = 'yarn'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type = 'dynamic'"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "'longrope'"),
        ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}, "gpt2"),
        ({"model_type": "mamba"}, "model_type = 'mamba'"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
    ],
)
def test_an_architecture_that_is_not_computed_here(
    folder: Path, values: dict[str, Any], named: str
) -> None:
    edit_config(folder, **values)
    message = refusal(folder)
    assert named in message
    assert "not supported yet" in message


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads = 0"),
        ({"num_key_value_heads": -2}, "num_key_value_heads = -2"),
        ({"num_key_value_heads": 4}, "num_key_value_heads"),
        ({"head_dim": 31}, "head_dim"),
        ({"vocab_size": 10**30}, "vocab_size = 1000000"),
        ({"vocab_size": "many"}, "vocab_size = 'many'"),
        ({"vocab_size": 1024.0}, "vocab_size = 1024.0"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1000000"),
        ({"max_position_embeddings": 10**12}, "max_position_embeddings = 1000000000000"),
        ({"max_position_embeddings": -1}, "max_position_embeddings = -1"),
        ({"rope_theta": 0}, "rope_theta = 0"),
        ({"rope_theta": "x"}, "rope_theta = 'x'"),
        ({"rope_scaling": "x"}, "rope_"),
        ({"rope_parameters": [1]}, "rope_"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps = -1.0"),
        ({"eos_token_id": ["x"]}, "eos_token_id = ['x']"),
    ],
)
def test_a_value_that_cannot_be(folder: Path, values: dict[str, Any], named: str) -> None:
    edit_config(folder, **values)
    message = refusal(folder)
    assert named in message
    assert "config.json" in message


def test_a_tokenizer_that_cannot_be_read(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    assert "tokenizer.json is not a readable tokenizer" in refusal(folder)


def test_without_a_tokenizer_ids_are_served_and_texts_refused(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    loaded = load_model(str(folder), device="cpu")
    assert loaded.token_text(17) == "[17]"
    stream = loaded.text_stream([])
    assert stream.push(3) + stream.push(400) + stream.flush() == "[3][400]"
    with pytest.raises(BadInput, match=r"no tokenizer\.json.*list of token ids"):
        loaded.encode("words")


@pytest.mark.skipif(torch.cuda.is_available(), reason="here cuda is there to be had")
def test_a_device_that_is_not_there() -> None:
    assert "cuda was asked for" in refusal("story", device="cuda")
    assert choose_device("auto").type == "cpu"
