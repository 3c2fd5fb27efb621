#!/usr/bin/env python3
"""Write the expected ids, texts and renders of tests/text, as Python's `tokenizers` and `transformers` give them.

    python tools/references/make_text_goldens.py tests/data/text [--model FOLDER --name NAME] [--many N]

Without --model: the toy tokenizer in tests/data/text/toy (trained here), its goldens toy.json, and the renders of every
template in tests/data/text/templates. With --model: NAME.json with the goldens of that folder's tokenizer, and its own
chat template's renders. --many adds N random texts, for checks that are too wide to be kept in the repository.
Needs the packages tokenizers, transformers and jinja2 (torch is not needed).
"""
import argparse
import base64
import json
import random
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PIECES = [
    "Hello, world!", "It's 3.14159 o'clock; we'll see.", "The quick brown fox", "人工智能正在改变世界。", "你好，世界！", "日本語も。",
    "한국어", "Привет, мир", "مرحبا", "e\u0301 é ﬁ Å Ⅷ", "😀😃 👩‍👩‍👧‍👦 🇩🇪 👍🏽", "def f(x):\n    return x ** 2  # square\n",
    "for (int i = 0; i < 10; ++i) {\n\tsum += a[i];\n}", "1234567890 12 1,000 007", "   leading", "trailing   ", "\t\t\n\n \r\n x",
    " ", "\n", "", "a\x00b", "\x01\x1f\x7f\x85\xa0\u2028\u200b\ufeff", "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|>",
    "<|im_start|><|im_end|>", " <|im_end|> x", "<|im_end", "<think>\nhm\n</think>\n\nyes", "<tool_call>{}</tool_call>", "a <mask> b",
    "�", "a�", "{\"a\": [1, 2.5, null]}", "x" * 50, "  " * 20 + "y", "WORD Word word", "don't DON'T", "https://a.b/c?d=e&f", "∑∫√ ≠ ∞",
]
BROKEN = [b"\xff", b"\x80abc", b"ab\xc3", b"\xe4\xbd", b"\xe4\xbd\xa0\xe5", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
          b"a\xe2\x28\xa1b", b"\xf0\x80\x80\xafz", b"\xf0\x9f\x98 \x80\xf0\x9f\x98\x80", b"<|im_end|>\xff<|im_start|>"]


def texts(many):
    rng = random.Random(7)
    chosen = [piece.encode() for piece in PIECES] + BROKEN
    chosen += ["".join(rng.sample(PIECES, 3)).encode() for _ in range(20)]
    for _ in range(many):
        mixed = "".join(rng.choice(PIECES) if rng.random() < 0.6 else chr(rng.choice([rng.randrange(1, 0x250), rng.randrange(0x3000, 0xA000),
                        rng.randrange(0x1F300, 0x1FA00)])) for _ in range(rng.randrange(1, 8))).encode()
        if rng.random() < 0.15:
            cut = rng.randrange(len(mixed) + 1)
            mixed = mixed[:cut] + bytes([rng.randrange(256)]) + mixed[cut + rng.randrange(2):]
        chosen.append(mixed)
    return chosen


def token_goldens(tokenizer, many):
    rows = []
    for raw in texts(many):
        text = raw.decode("utf-8", "replace")
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        row = {"bytes": base64.b64encode(raw).decode(), "ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
               "skipped": tokenizer.decode(ids, skip_special_tokens=True)}
        rows.append(row if plain == ids else row | {"plain": plain})
    tokenizer.encode_special_tokens = False
    return rows


TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "It's the <weather> & \"more\" — für 北京", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Köln"]}, "days": {"type": "integer", "default": 1},
                                     "items": {"type": "array", "items": {"type": "number"}}}, "required": ["city"]}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2, "exact": True, "unit": None, "x": [0.1, 1e-7, 1e22]}}}]}
TWO_CALLS = {"role": "assistant", "content": "Both.", "tool_calls": CALL["tool_calls"] * 2}
CALL_TEXT = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 1}"}}]}


def say(*contents, first="user"):
    other = {"user": "assistant", "assistant": "user"}
    roles = [first if i % 2 == 0 else other[first] for i in range(len(contents))]
    return [{"role": role, "content": content} for role, content in zip(roles, contents)]


def conversations():
    system = {"role": "system", "content": "Add.\nBe  brief. "}
    weather = say("Weather in Köln?") + [CALL, {"role": "tool", "content": "{\"t\": 7}", "name": "get_weather"}]
    return [
        say("hi"), say(""), say("  blanks  \n"), say("1+1", "2", "5+3"), [system] + say("hello. a b\tc"), [system] + say("1+1", "2", "5+3", "8", "4+4"),
        say("q", "<think>\nfirst\n</think>\n\nanswer", "more?"), say("q", "<think>\nfirst\n</think>\n\nanswer"), say("héllo 世界 😀 it's \"q\" \\ \x07\u200b\xa0é"),
        say("q") + [{"role": "assistant", "content": "a", "reasoning_content": "because"}], weather, weather + say("7 degrees.", first="assistant"),
        [system] + weather + [{"role": "tool", "content": "again"}], say("both") + [TWO_CALLS], say("text") + [CALL_TEXT],
        say("<tool_response>\nx\n</tool_response>"), say("1234"), say("a"), say([{"type": "text", "text": "part's"}]), say({"a": 1}),
        say(3), say(None), [{"role": "user", "content": "n", "name": "Bob", "z": 1.0, "y": [True, None, "'"]}], say("line\nbreak\r\nand\x0bmore"),
    ]


def render_goldens(name, template, special_tokens):
    rows = []
    chat = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **special_tokens)
    for number, messages in enumerate(conversations()):
        variants = [{}, {"add_generation_prompt": True}, {"tools": TOOLS}, {"add_generation_prompt": True, "kwargs": {"enable_thinking": False}}]
        # The variants matter little to the template of Python's ways, whose renders are long.
        for variant in variants[:1] if name == "python" else variants if number % 2 == 0 else variants[:3]:
            row = {"template": name, "messages": json.dumps(messages, ensure_ascii=False), **variant}
            try:
                row["rendered"] = chat.apply_chat_template(
                    messages, tools=variant.get("tools"), chat_template=template, tokenize=False,
                    add_generation_prompt=variant.get("add_generation_prompt", False), **variant.get("kwargs", {}))
            except Exception as error:  # whatever Python raises, a render must fail here too
                row["error"] = str(error)
            rows.append(row)
    return rows


def train_toy(folder):
    """A byte-level BPE of a few hundred tokens: small enough for the repository."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    words = "the user assistant system hello world what is a sum of two numbers add answer only number and then tool weather return city"
    tokenizer.train_from_iterator([words] * 5 + PIECES, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ["<think>", "</think>", "<tool_call>", "</tool_call>"]])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<|forgotten|>", normalized=False)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write(folder / "tokenizer_config.json", {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "pad_token": "<|endoftext|>"})
    return tokenizer


def write(path, value):
    """One row a line."""
    dump = lambda x: json.dumps(x, ensure_ascii=False, separators=(",", ":"))
    parts = [f"{dump(key)}:" + ("[\n" + ",\n".join(map(dump, item)) + "\n]" if isinstance(item, list) else dump(item)) for key, item in value.items()]
    path.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--name", default="model")
    parser.add_argument("--many", type=int, default=0)
    args = parser.parse_args()
    if args.model:
        config = json.loads((args.model / "tokenizer_config.json").read_text(encoding="utf-8"))
        tokens = {key: value if isinstance(value, str) else value["content"] for key, value in config.items()
                  if key in ("bos_token", "eos_token", "pad_token", "unk_token") and value}
        tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
        write(args.out / f"{args.name}.json", {"tokens": token_goldens(tokenizer, args.many),
                                               "renders": render_goldens("", config["chat_template"], tokens)})
        return
    tokenizer = train_toy(args.out / "toy")
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    renders = [row for path in sorted((args.out / "templates").glob("*.jinja"))
               for row in render_goldens(path.stem, path.read_text(encoding="utf-8"), tokens)]
    write(args.out / "toy.json", {"tokens": token_goldens(tokenizer, args.many), "renders": renders})


if __name__ == "__main__":
    main()
