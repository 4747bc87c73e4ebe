"""What cannot be loaded is refused by name while memory is still empty, and nothing is executed."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvlab.errors import BadInput
from kvlab.models import memory
from kvlab.models.checkpoint import Checkpoint
from kvlab.models.config import ModelConfig
from kvlab.models.describe import Description
from kvlab.models.llama import Llama
from kvlab.models.loading import choose_dtype, load_model

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
PARAMETERS = 2 * 32 * 16 + 16 * 16 * 2 + 16 * 8 * 2 + 3 * 16 * 24 + 3 * 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model folder; tests break it."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    model = Llama(ModelConfig.from_json(CONFIG, "config.json"))
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    return tmp_path


def edit_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def edit_weights(folder: Path, **changes: torch.Tensor | None) -> None:
    """`a__b=tensor` sets the tensor a.b, None takes it away."""
    weights = load_file(folder / "model.safetensors")
    for key, tensor in changes.items():
        name = key.replace("__", ".")
        if tensor is None:
            del weights[name]
        else:
            weights[name] = tensor
    save_file(weights, folder / "model.safetensors")


def refusal(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    """The sentence, after making sure that no weight is read before it."""

    def read(self: Checkpoint, names: Any) -> Any:
        raise AssertionError("weights were read before the refusal")

    monkeypatch.setattr(Checkpoint, "read", read)
    with pytest.raises(BadInput) as caught:
        load_model(str(folder), device="cpu", **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_folder_itself_loads(folder: Path) -> None:
    loaded = load_model(str(folder), device="cpu")
    assert sum(weight.numel() for weight in loaded.model.parameters()) == PARAMETERS


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"model_type": "gemma2"}, "model_type = 'gemma2'"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"architectures": [["x"]]}, "architectures"),
        ({"model_type": None, "architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"hidden_act": "gelu_pytorch_tanh"}, "hidden_act = 'gelu_pytorch_tanh'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type = 'dynamic'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_type = 'yarn'"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "each type of layer"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantized by gptq"),
    ],
)
def test_what_is_not_computed_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], named: str
) -> None:
    edit_config(folder, **values)
    assert named in refusal(folder, monkeypatch)


def test_llama3_factors_that_contradict(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 4.0,
        "high_freq_factor": 1.0,
        "original_max_position_embeddings": 32,
    }
    edit_config(folder, rope_scaling=rope)
    assert "high_freq_factor must be greater" in refusal(folder, monkeypatch)


def test_a_missing_tensor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit_weights(folder, model__norm__weight=None)
    assert "the tensor model.norm.weight is missing" in refusal(folder, monkeypatch)


def test_biases_that_the_config_does_not_speak_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_weights(folder, model__layers__0__self_attn__q_proj__bias=torch.zeros(16))
    assert "q_proj.bias has no place" in refusal(folder, monkeypatch)


def test_biases_that_are_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit_config(folder, attention_bias=True)
    assert "q_proj.bias is missing" in refusal(folder, monkeypatch)


def test_a_wrong_shape(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit_weights(folder, lm_head__weight=torch.zeros(33, 16))
    message = refusal(folder, monkeypatch)
    assert "lm_head.weight has the shape (33, 16)" in message
    assert "(32, 16)" in message


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int32, torch.float8_e4m3fn])
def test_quantized_tensors(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: torch.dtype
) -> None:
    edit_weights(folder, lm_head__weight=torch.zeros(32, 16).to(kind))
    assert "lm_head.weight is stored as" in refusal(folder, monkeypatch)


def test_frequencies_that_older_files_hold_are_passed_over(folder: Path) -> None:
    edit_weights(folder, model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(2))
    load_model(str(folder), device="cpu")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_a_pickle_alone(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"\x80\x04.")
    message = refusal(folder, monkeypatch)
    assert name in message
    assert "can run code" in message


# Memory.


def needed(dtype: torch.dtype) -> int:
    return (PARAMETERS + 64 * 4) * dtype.itemsize  # and the rotary tables


def test_too_little_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: needed(torch.float32))
    load_model(str(folder), device="cpu")
    monkeypatch.setattr(memory, "available_memory", lambda: needed(torch.float32) - 1)
    message = refusal(folder, monkeypatch)
    assert "in float32" in message
    assert "use dtype: bfloat16, which fits" in message
    monkeypatch.setattr(memory, "available_memory", lambda: needed(torch.bfloat16) - 1)
    assert "smaller model" in refusal(folder, monkeypatch, dtype="bfloat16")


def test_half_the_memory_is_enough_for_half_the_precision(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: needed(torch.bfloat16))
    assert load_model(str(folder), device="cpu", dtype="bfloat16").dtype is torch.bfloat16


def test_memory_that_nobody_knows_refuses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    load_model(str(folder), device="cpu")


def test_a_terabyte_of_weights_is_refused_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with holes: its size is real, its content nowhere."""
    edit_config(folder, vocab_size=10_000_000, hidden_size=16_000, head_dim=4)
    with torch.device("meta"):
        weights = Llama(ModelConfig.from_folder(folder)).state_dict()
    header, end = {}, 0
    for name, weight in weights.items():
        first, end = end, end + 4 * weight.numel()
        header[name] = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": [first, end]}
    text = json.dumps(header).encode()
    try:
        with (folder / "model.safetensors").open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            stream.truncate(8 + len(text) + end)
    except OSError:
        pytest.skip("no file of this size can be made here")
    assert end > 10**12
    message = refusal(folder, monkeypatch)
    assert "needs 1280." in message
    assert "of memory are free" in message


def test_without_psutil_only_a_container_says_how_much_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "none")
    assert memory.available_memory() is None


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    unlimited = memory.available_memory()
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 300\nother 5\n")
    assert memory.available_memory() == 1300
    (tmp_path / "memory.max").write_text("max\n")
    again = memory.available_memory()
    assert (again is None) == (unlimited is None)


def test_a_dtype_that_nobody_knows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "float64" in refusal(folder, monkeypatch, dtype="float64")


def test_a_dtype_that_the_device_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **named: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old Card")
    cuda = torch.device("cuda", 0)
    with pytest.raises(BadInput, match="Old Card has no bfloat16"):
        choose_dtype("bfloat16", cuda)
    assert choose_dtype("float16", cuda) is torch.float16


# Files that are not what they say.


def test_an_index_that_leads_out_of_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = folder.parent / "outside.safetensors"
    (folder / "model.safetensors").rename(outside)
    index = {"weight_map": {"lm_head.weight": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "no file of this folder" in refusal(folder, monkeypatch)


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"a": 1}}])
def test_an_index_that_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, index: dict[str, Any]
) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "has no weight_map" in refusal(folder, monkeypatch)


def test_a_shard_that_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-2.safetensors is missing" in refusal(folder, monkeypatch)


def test_two_files_that_claim_a_tensor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    for name in ("a.safetensors", "b.safetensors"):
        (folder / name).write_bytes(data)
    assert "a.safetensors and b.safetensors hold" in refusal(folder, monkeypatch)


def test_a_git_lfs_pointer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (folder / "model.safetensors").write_text(pointer)
    assert "Git LFS pointer" in refusal(folder, monkeypatch)


def _with_header(text: bytes, data: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text + data


ENTRY = b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, %d]}}'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 8,
        b"\xff" * 64,
        _with_header(b"[1, 2]"),
        _with_header(b"{" * 50_000),
        _with_header(b'{"a": 5}'),
        _with_header(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}'),
        _with_header(b'{"a": {"dtype": "F32", "shape": "2", "data_offsets": [0, 8]}}'),
        _with_header(ENTRY % 8),
        _with_header(ENTRY % 12, bytes(12)),
        _with_header(ENTRY % 8, bytes(20)),
    ],
)
def test_headers_that_lie(folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    message = refusal(folder, monkeypatch)
    assert "model.safetensors is not a readable safetensors file" in message


def test_a_description_refuses_as_loading_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Description.of(folder).parameters == PARAMETERS
    edit_weights(folder, model__norm__weight=None)
    with pytest.raises(BadInput) as caught:
        Description.of(folder)
    assert str(caught.value) == refusal(folder, monkeypatch)


# Nothing in a folder is executed.


class Trap:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_a_folder_full_of_traps(folder: Path) -> None:
    trap = folder.parent / "sprung"
    code = f"open({str(trap)!r}, 'w')\n"
    for name in ("modeling_x.py", "__init__.py", "config.py", "sitecustomize.py", "conftest.py"):
        (folder / name).write_text(code)
    for name in ("pytorch_model.bin", "optimizer.pt", "extra.pkl"):
        (folder / name).write_bytes(pickle.dumps(Trap(trap)))
    auto_map = {"AutoConfig": "modeling_x.C", "AutoModelForCausalLM": "modeling_x.M"}
    edit_config(folder, auto_map=auto_map, trust_remote_code=True)
    escape = "{{ cycler.__init__.__globals__.os.system('touch " + str(trap) + "') }}"
    (folder / "chat_template.jinja").write_text(escape)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "modeling_x.T", "auto_map": auto_map})
    )
    loaded = load_model(str(folder), device="cpu")
    assert loaded.chat_template is not None
    with pytest.raises(BadInput, match="cannot be rendered"):
        loaded.chat_template.render([{"role": "user", "content": "x"}])
    assert not trap.exists()
