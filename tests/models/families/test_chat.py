"""Chat templates render what transformers renders, and reach nothing outside the sandbox.

The source of every expected text is transformers' `apply_chat_template` with the same folder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kvlab.errors import BadInput
from kvlab.models.chat import ChatTemplate
from kvlab.models.loading import STORY, LoadedModel, load_model

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{% continue %}{% endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'
        + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
MISTRAL = """\
{{ bos_token }}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {% endif %}
    {% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
    {% else %}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{% endif %}
{% endfor %}
"""
QWEN3 = """\
{%- set ns = namespace(last=messages|length - 1, seen=false) %}
{%- for message in messages[::-1] %}
    {%- if not ns.seen and message.role == 'user' %}
        {%- set ns.seen = true %}{%- set ns.last = messages|length - loop.index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{{- ns.last }} {{ dict(a=1) | tojson }} {{ messages | tojson(indent=2) }}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "qwen3": QWEN3}

TALK = [
    {"role": "user", "content": "  What is a <b>block</b> table? \n"},
    {"role": "assistant", "content": 'Größe & "place" of a request\'s blocks.'},
    {"role": "user", "content": "And <|end|>?"},
]
SYSTEM = {"role": "system", "content": " Be short. "}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The bundled model with room for a template."""
    copy = tmp_path / "model"
    shutil.copytree(STORY, copy)
    return copy


def give_template(folder: Path, template: Any, **more: Any) -> LoadedModel:
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"bos_token": "<|end|>", "chat_template": template}
    path.write_text(json.dumps(config | more))
    return load_model(str(folder), device="cpu")


@pytest.mark.parametrize("name", TEMPLATES)
def test_text_and_tokens_equal_those_of_transformers(folder: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    loaded = give_template(folder, TEMPLATES[name])
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    template = loaded.chat_template
    assert template is not None
    for talk in (TALK, TALK[:1], [SYSTEM, *TALK] if name != "mistral" else TALK):
        for reply in (True, False):
            expected = theirs.apply_chat_template(talk, tokenize=False, add_generation_prompt=reply)
            assert template.render(talk, reply=reply) == expected
        expected_ids = theirs.apply_chat_template(talk, add_generation_prompt=True)["input_ids"]
        assert loaded.chat(talk) == expected_ids


def test_further_names_reach_the_template(folder: Path) -> None:
    template = give_template(folder, QWEN3).chat_template
    assert template is not None
    assert template.render(TALK, enable_thinking=False).endswith("<think>\n\n</think>\n\n")


def test_where_a_template_is_found(folder: Path) -> None:
    assert load_model(str(folder), device="cpu").chat_template is None
    several = [
        {"name": "tool_use", "template": "tool"},
        {"name": "default", "template": "the default"},
    ]
    template = give_template(folder, several).chat_template
    assert template is not None
    assert template.render(TALK) == "the default"
    (folder / "chat_template.jinja").write_text("the file {{ eos_token }}{{ bos_token }}")
    entry = {"content": "<s>", "lstrip": False, "__type": "AddedToken"}
    template = give_template(folder, "the key", bos_token=entry).chat_template
    assert template is not None
    assert template.render(TALK) == "the file <|end|><s>"


def test_without_a_template_or_a_tokenizer(folder: Path) -> None:
    with pytest.raises(BadInput, match="no chat template: it continues plain text"):
        load_model(str(folder), device="cpu").chat(TALK)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match=r"no tokenizer\.json"):
        give_template(folder, CHATML).chat(TALK)


def test_a_prompt_stays_plain_text(folder: Path) -> None:
    plain = load_model(str(folder), device="cpu").encode("Ana and Ben")
    assert give_template(folder, CHATML).encode("Ana and Ben") == plain


def test_the_begin_of_text_that_a_tokenizer_puts_before_a_prompt(folder: Path) -> None:
    """As transformers does with the same tokenizer.json: Llama's and Mistral's have it."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, processors

    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|end|> $A", special_tokens=[("<|end|>", 0)]
    )
    tokenizer.save(str(path))
    loaded = give_template(folder, "{{ bos_token }}{{ messages[0].content }}")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ids = loaded.encode("Ana and Ben")
    assert ids[0] == 0
    assert ids == theirs("Ana and Ben")["input_ids"]
    # A template writes its own: it does not come twice.
    assert loaded.chat([{"role": "user", "content": "Ana and Ben"}]) == ids


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "hello",
        [1],
        ["x"],
        [{"content": "no role"}],
        [{"role": 5}],
        [{"role": "user", "x": {1}}],
    ],
)
def test_messages_that_are_none(messages: Any) -> None:
    with pytest.raises(BadInput, match="chat"):
        ChatTemplate(CHATML, "here").render(messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{% for %}",
        "{{ messages[0].content + 5 }}",
        "{{ nothing.there }}",
        "{{ 1 / 0 }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_a_template_that_fails_is_named(source: str) -> None:
    with pytest.raises(BadInput, match=r"template in place\.jinja cannot be rendered"):
        ChatTemplate(source, "place.jinja").render(TALK)


REACHES_OPEN = "__globals__['__builtins__']['open'](TRAP, 'w')"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__ }}",
        "{{ (messages|attr('__class__')).__base__ }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ '{x.__class__.__mro__}'.format_map({'x': messages}) }}",
        "{{ self.__init__.GLOBALS }}",
        "{{ raise_exception.GLOBALS }}",
        "{{ strftime_now.GLOBALS }}",
        "{{ dict.GLOBALS }}",
        "{{ namespace.__init__.GLOBALS }}",
        "{{ range.GLOBALS }}",
        "{{ cycler.__init__.GLOBALS }}",
        "{{ lipsum.GLOBALS }}",
        "{{ joiner.__init__.GLOBALS }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{% set ns = namespace(__init__=1) %}",
        "{{ messages.append('more') }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ messages.clear() }}",
        "{% for n in range(1000000000) %}{% endfor %}",
        "{{ open(TRAP, 'w') }}",
        "{{ __import__('os') }}",
    ],
)
def test_no_way_out_of_the_sandbox(tmp_path: Path, source: str) -> None:
    trap = tmp_path / "sprung"
    talk = [dict(message) for message in TALK]
    source = source.replace("GLOBALS", REACHES_OPEN).replace("TRAP", repr(str(trap)))
    template = ChatTemplate(source, "x.jinja")
    with pytest.raises(BadInput):
        template.render(talk)
    assert not trap.exists()
    assert talk == TALK


def test_objects_of_ours_are_out_of_reach() -> None:
    class Named(str):
        secret = "secret"

    talk = [{"role": "user", "content": Named("x")}]
    assert ChatTemplate("{{ messages[0].content.secret }}", "x").render(talk) == ""
