"""A random two-layer model with a tokenizer of bytes, as a Hugging Face folder. Standard library only."""
import array
import json
import os
import random
import struct

VOCAB, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FF, LAYERS = 259, 32, 4, 2, 8, 48, 2
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_characters():
    """The printable characters that byte-level tokenizers write the 256 bytes as."""
    following = iter(range(256, 512))
    printable = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    return [chr(b if b in printable else next(following)) for b in range(256)]


def tokenizer():
    added = [
        {"id": 256 + i, "content": text, "special": True, "normalized": False, "single_word": False, "lstrip": False,
         "rstrip": False}
        for i, text in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(byte_characters())}, "merges": []}
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "decoder": level,
            "post_processor": None, "model": model}


def shapes():
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (HIDDEN,)
        yield prefix + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield prefix + "self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield prefix + "self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield prefix + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield prefix + "post_attention_layernorm.weight", (HIDDEN,)
        yield prefix + "mlp.gate_proj.weight", (FF, HIDDEN)
        yield prefix + "mlp.up_proj.weight", (FF, HIDDEN)
        yield prefix + "mlp.down_proj.weight", (HIDDEN, FF)
    yield "model.norm.weight", (HIDDEN,)


def write_safetensors(path, tensors):
    """tensors: name -> (shape, array of floats)"""
    header, offset = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + 4 * len(values)]}
        offset += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            out.write(values.tobytes())


def read_safetensors(path):
    """name -> (dtype, shape, bytes)"""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: (t["dtype"], t["shape"], data[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]])
        for name, t in header.items()
    }


def write_model(folder, shards=1, seed=5):
    os.makedirs(folder)
    source = random.Random(seed)
    tensors = {}
    for name, shape in shapes():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if len(shape) == 1 else [source.gauss(0, 0.25) for _ in range(count)]
        tensors[name] = (shape, array.array("f", values))
    if shards == 1:
        write_safetensors(f"{folder}/model.safetensors", tensors)
    else:
        files = {}
        for i in range(shards):
            part = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            names = list(tensors)[i::shards]
            write_safetensors(f"{folder}/{part}", {name: tensors[name] for name in names})
            files.update({name: part for name in names})
        dump(f"{folder}/model.safetensors.index.json", {"metadata": {"total_size": 0}, "weight_map": files})
    dump(f"{folder}/config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "tie_word_embeddings": True, "vocab_size": VOCAB, "attention_bias": False,
        "mlp_bias": False, "bos_token_id": 257, "eos_token_id": 258, "torch_dtype": "float32"})
    dump(f"{folder}/tokenizer.json", tokenizer())
    dump(f"{folder}/tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>", "chat_template": TEMPLATE})
    dump(f"{folder}/generation_config.json", {"bos_token_id": 257, "eos_token_id": 258})


def dump(path, value):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out)
