#include "reward/function_script.h"

namespace tandem {

// The user's code runs in the main thread, where it may use signals. A second thread reads, so that a parent's death
// ends the process even while the user's code runs.
const char* const kFunctionScript = R"python(
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.machinery, importlib.util, inspect, json, math, os, queue, threading, traceback

channel = os.dup(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
path, name, kwargs = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
sys.argv = [path]
sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
sys.path.append(os.getcwd())
requests = queue.Queue()

def read_requests():
    try:
        with os.fdopen(os.dup(channel), "rb") as lines:
            for line in lines:
                requests.put(line)
    finally:
        os._exit(0)

def reply(answer):
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(channel, data):]

def describe(error):
    text = " ".join(traceback.format_exception_only(type(error), error)[-1].split())
    places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return text + (" (%s line %d)" % (os.path.basename(path), places[-1]) if places else "")

def is_number(value):
    return not isinstance(value, (str, bytes)) and hasattr(value, "__float__")

def load():
    loader = importlib.machinery.SourceFileLoader("user_reward", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("user_reward", loader))
    sys.modules["user_reward"] = module
    loader.exec_module(module)
    return getattr(module, name)

def evaluate(function, request):
    result = function(**request, **kwargs)
    if inspect.isawaitable(result):
        import asyncio
        async def wait():
            return await result
        result = asyncio.run(wait())
    entries = result if isinstance(result, dict) else {"score": result}
    if "score" not in entries:
        return {"error": "it returned a dict without \"score\""}
    score = entries["score"]
    if not is_number(score) or not math.isfinite(score):
        return {"error": "it returned %s as the score; it must be a finite number" % repr(score)[:100]}
    accuracy = entries.get("acc")  # validation reports it, and would take the score for one that is dropped
    if is_number(accuracy) and not math.isfinite(accuracy):
        return {"error": "it returned %s as \"acc\"; it must be a finite number" % accuracy}
    extra = {str(key): float(value) for key, value in entries.items() if key != "score" and is_number(value)}
    return {"score": float(score), "extra": [[k, v] for k, v in extra.items() if math.isfinite(v)]}

try:
    compute_score = load()
    reply({"ready": True})
except BaseException as error:
    reply({"error": describe(error)})
    os._exit(1)

threading.Thread(target=read_requests, daemon=True).start()
while True:
    request = json.loads(requests.get())
    try:
        answer = evaluate(compute_score, request)
    except BaseException as error:
        answer = {"error": describe(error)}
    reply(answer)
)python";

}  // namespace tandem
