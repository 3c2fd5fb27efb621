"""The chat page of a served model in a headless Chromium: serve_chat.py PROGRAM. Standard library only; left out, with a
word, where no Chromium is installed."""
import json

from browser import Browser, find_chromium
from driver import expect, in_temporary_folder
from serve_driver import Server
from tiny_model import write_model

LONGEST = 50_000  # tokens: a reply that takes a while
MODEL_SAYS = "document.querySelector('.turn.assistant:last-of-type div')?.textContent ?? ''"
IDLE = "!document.querySelector('#send').hidden"


def say(browser, text):
    browser.eval("document.querySelector('#text').focus()")
    browser.call("Input.insertText", text=text)
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    browser.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter", windowsVirtualKeyCode=13)


def setting(browser, name, value):
    browser.eval(f"(e => {{ e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change')); }})(document.querySelector('#{name}'))")


def answered(browser, turns):
    browser.wait(f"{IDLE} && document.querySelectorAll('.turn.assistant').length === {turns}", f"reply {turns}")


def chats(browser, server):
    browser.go(f"http://{server.host}:{server.port}/")
    browser.wait("document.querySelector('#about').textContent.includes('tiny')", "the model's name")
    setting(browser, "max_tokens", "12")
    setting(browser, "seed", "3")
    setting(browser, "temperature", "1")
    say(browser, "hi")
    answered(browser, 1)
    reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "seed": 3})
    first = reply["choices"][0]["message"]["content"]
    expect(browser.eval(MODEL_SAYS) == first, "the page shows what the API answers", browser.eval(MODEL_SAYS))
    small = browser.eval("document.querySelector('.turn.assistant small').textContent")
    expect(small.startswith(f"{reply['usage']['completion_tokens']} tokens in ") and "weights 0" in small, "facts below it", small)
    say(browser, "<img src=x onerror='window.hacked = 1'>")
    answered(browser, 2)
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": first},
                {"role": "user", "content": "<img src=x onerror='window.hacked = 1'>"}]
    reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 12, "seed": 3})
    expect(browser.eval("document.querySelectorAll('.turn.assistant')[1].querySelector('div').textContent") ==
           reply["choices"][0]["message"]["content"], "the second turn knows the first")
    expect(browser.eval("document.querySelector('main img') === null && window.hacked === undefined"), "text is text")
    return first


def stops(browser, server):
    """Esc ends a reply, and its blocks are free."""
    browser.eval("document.querySelector('#new').click()")
    expect(browser.eval("document.querySelectorAll('.turn').length") == 0, "a new chat is empty")
    setting(browser, "max_tokens", "")
    setting(browser, "temperature", "0")  # a small model then repeats itself for ever
    say(browser, "go")
    browser.wait(f"!({IDLE}) && ({MODEL_SAYS}).length > 0", "a reply that goes on")
    browser.key("Escape")
    answered(browser, 1)
    expect(browser.eval("document.querySelector('.turn.assistant small').textContent") == "stopped", "it is said to be stopped")
    server.eventually("its blocks are free", lambda: server.metric("tandem_kv_blocks") == server.metric("tandem_kv_blocks_free"))


def looks(browser):
    browser.eval("document.querySelector('#theme').click()")
    first = browser.eval("getComputedStyle(document.body).backgroundColor")
    browser.eval("document.querySelector('#theme').click()")
    expect(browser.eval("getComputedStyle(document.body).backgroundColor") != first, "light and dark")
    browser.size(390, 844, mobile=True, scale=2)
    wide = browser.eval("document.documentElement.scrollWidth")
    expect(wide <= 390, f"{wide} wide on a phone of 390")


def refused(browser):
    """An error is shown where the reply would be; the key opens the door."""
    server = Server("model", "--served-model-name", "tiny", "--api-key", "secret")
    browser.go(f"http://{server.host}:{server.port}/")
    browser.wait("document.querySelector('#about').textContent.includes('API key')", "that a key is asked for")
    say(browser, "hi")
    browser.wait("document.querySelector('.turn.error div')?.textContent.includes('API key')", "the error")
    setting(browser, "key", "secret")
    browser.wait("document.querySelector('#about').textContent.includes('tiny')", "the model's name")
    setting(browser, "max_tokens", "4")
    say(browser, "hi")
    browser.wait(f"{IDLE} && ({MODEL_SAYS}).length > 0", "a reply")
    server.end()


def main():
    chromium = find_chromium()
    if not chromium:
        return print("no Chromium here: the chat page was not looked at (apt-get install chromium, or set CHROMIUM)")
    write_model("model")
    with open("model/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open("model/config.json", "w", encoding="utf-8") as file:
        json.dump(config | {"max_position_embeddings": LONGEST}, file)
    server = Server("model", "--served-model-name", "tiny", "--max-model-len", str(LONGEST))
    browser = Browser(chromium)
    try:
        chats(browser, server)
        stops(browser, server)
        looks(browser)
        expect(browser.complaints() == [], "the console is silent", "\n".join(browser.complaints()))
        server.end()
        refused(browser)
    finally:
        browser.close()
    print("serve chat page: ok")


in_temporary_folder(main)
