"""The OpenAI Python client and LangChain's chat class, unmodified, against a served tiny model: serve_clients.py PROGRAM.
What is not installed is skipped with a word."""
import json

from driver import expect, in_temporary_folder
from serve_driver import Server
from tiny_model import TEMPLATE, write_model

HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}}}


def write_tool_model(folder):
    write_model(folder)
    path = f"{folder}/tokenizer_config.json"
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["chat_template"] = "{% if tools %}{{ tools | tojson }}\n{% endif %}" + TEMPLATE
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)


def openai_client(server, openai):
    client = openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="secret", max_retries=0)
    model = client.models.list().data[0].id
    chat = client.chat.completions.create(model=model, messages=HI, n=2, seed=3, max_tokens=8, stop=["\x00"],
                                          logprobs=True, top_logprobs=2)
    texts = [choice.message.content for choice in chat.choices]
    expect(len(chat.choices) == 2 and chat.usage.completion_tokens == sum(len(c.logprobs.content) for c in chat.choices),
           "a chat with log-probs", str(chat))
    expect(all(len(token.top_logprobs) == 2 for token in chat.choices[0].logprobs.content), "top log-probs")
    streamed, usage = ["", ""], None
    for piece in client.chat.completions.create(model=model, messages=HI, n=2, seed=3, max_completion_tokens=8,
                                                stop=["\x00"], stream=True, stream_options={"include_usage": True}):
        usage = piece.usage or usage
        for choice in piece.choices:
            streamed[choice.index] += choice.delta.content or ""
    expect(streamed == texts and usage == chat.usage, "a stream", f"{streamed} {texts}")
    with client.chat.completions.stream(model=model, messages=HI, seed=3, max_tokens=8) as stream:
        final = [event for event in stream][-1]
    expect(final is not None, "the client's own stream helper")
    text = client.completions.create(model=model, prompt=[104, 105], max_tokens=5, logprobs=1, seed=1, echo=False)
    expect(len(text.choices[0].logprobs.token_logprobs) == text.usage.completion_tokens, "a completion", str(text))
    pieces = client.completions.create(model=model, prompt=[104, 105], max_tokens=5, seed=1, stream=True)
    expect("".join(piece.choices[0].text for piece in pieces) == text.choices[0].text, "its stream")
    called = client.chat.completions.create(model=model, messages=HI, tools=[TOOL], tool_choice="auto", max_tokens=3)
    expect(called.choices[0].finish_reason in ("length", "stop"), "tools", str(called))
    extra = client.chat.completions.create(model=model, messages=HI, max_tokens=3, extra_body={"return_token_ids": True})
    expect(len(extra.choices[0].token_ids) == extra.usage.completion_tokens, "token ids by extra_body", str(extra))
    for wrong, error in ((dict(model="other", messages=HI), openai.NotFoundError),
                         (dict(model=model, messages=HI, max_tokens=100000), openai.BadRequestError),
                         (dict(model=model, messages=HI, response_format={"type": "json_object"}), openai.BadRequestError)):
        try:
            client.chat.completions.create(**wrong)
            expect(False, f"{wrong} was taken")
        except error as refusal:
            expect(refusal.body["message"], "the error's words", str(refusal))
    try:
        openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="wrong").models.list()
        expect(False, "a wrong key was taken")
    except openai.AuthenticationError:
        pass
    return "openai " + openai.__version__


def langchain_client(server, chat_class):
    chat = chat_class(base_url=f"http://{server.host}:{server.port}/v1", api_key="secret", model="tiny", max_tokens=6,
                      temperature=0, max_retries=0)
    answer = chat.invoke([("system", "be brief"), ("human", "hi")])
    expect(answer.usage_metadata["output_tokens"] >= 1, "LangChain: invoke", str(answer))
    streamed = "".join(piece.content for piece in chat.stream([("system", "be brief"), ("human", "hi")]))
    expect(streamed == answer.content, "LangChain: stream", f"{streamed!r} {answer.content!r}")
    both = chat.batch(["hi", "ho"])
    expect(len(both) == 2, "LangChain: batch")
    expect(chat.bind_tools([TOOL]).invoke("hi") is not None, "LangChain: tools")
    logprobs = chat.bind(logprobs=True, top_logprobs=2).invoke("hi").response_metadata["logprobs"]["content"]
    expect(len(logprobs) >= 1, "LangChain: log-probs")
    return "LangChain"


def main():
    try:
        import openai
    except ImportError:
        print("serve clients: skipped, the openai package is not installed")
        return
    write_tool_model("model")
    server = Server("model", "--served-model-name", "tiny", "--api-key", "secret")
    seen = [openai_client(server, openai)]
    try:
        from langchain_openai import ChatOpenAI
        seen.append(langchain_client(server, ChatOpenAI))
    except ImportError:
        print("serve clients: langchain_openai is not installed")
    server.end()
    print(f"serve clients: ok ({', '.join(seen)})")


in_temporary_folder(main)
