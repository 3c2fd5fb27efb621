#include "observe/bridge_script.h"

namespace tandem {

// ids.json keeps each service's name of the run, so that a resumed run goes on under it.
const char* const kBridgeScript = R"python(
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib, json, os, uuid

channel = os.dup(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
lines = os.fdopen(os.dup(channel), "rb")

def reply(answer):
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(channel, data):]

def describe(error):
    return " ".join(("%s: %s" % (type(error).__name__, error)).split())[:300]

start = json.loads(lines.readline())
service, project, experiment, folder = (start[key] for key in ("service", "project", "experiment", "folder"))
ids_path = os.path.join(folder, "trackers", "ids.json")

def known_id():
    try:
        with open(ids_path) as file:
            return json.load(file).get(service) if start["resume"] else None
    except (OSError, ValueError):
        return None

def keep_id(run_id):
    ids = {}
    try:
        with open(ids_path) as file:
            ids = json.load(file)
    except (OSError, ValueError):
        pass
    ids[service] = run_id
    with open(ids_path, "w") as file:
        json.dump(ids, file)

class Wandb:
    def __init__(self, wandb):
        self.wandb, run_id = wandb, known_id() or uuid.uuid4().hex[:8]
        run = wandb.init(project=project, name=experiment, config=start["config"], id=run_id, resume="allow",
                         dir=os.path.join(folder, "trackers"))
        keep_id(run_id)
        self.url = getattr(run, "url", None)
    def log(self, step, metrics):
        self.wandb.log(metrics, step=step)
    def finish(self):
        self.wandb.finish()

class Mlflow:
    def __init__(self, mlflow):
        self.mlflow = mlflow
        mlflow.set_experiment(project)
        run = mlflow.start_run(run_id=known_id(), run_name=experiment)
        keep_id(run.info.run_id)
        mlflow.log_dict(start["config"], "config.json")
        self.url = None
    def log(self, step, metrics):
        self.mlflow.log_metrics({name.replace("@", "_at_"): value for name, value in metrics.items()}, step=step)
    def finish(self):
        self.mlflow.end_run()

class Swanlab:
    def __init__(self, swanlab):
        self.swanlab, self.url = swanlab, None
        swanlab.init(project=project, experiment_name=experiment, config=start["config"],
                     logdir=os.environ.get("SWANLAB_LOG_DIR", os.path.join(folder, "trackers", "swanlab")),
                     mode=os.environ.get("SWANLAB_MODE", "cloud"))
    def log(self, step, metrics):
        self.swanlab.log(metrics, step=step)
    def finish(self):
        self.swanlab.finish()

class Trackio:
    def __init__(self, trackio):
        self.trackio, self.url = trackio, None
        trackio.init(project=project, name=experiment, config=start["config"], resume="allow")
    def log(self, step, metrics):
        self.trackio.log(metrics, step=step)
    def finish(self):
        self.trackio.finish()

CLIENTS = {"wandb": Wandb, "mlflow": Mlflow, "swanlab": Swanlab, "trackio": Trackio}

def main():
    os.makedirs(os.path.dirname(ids_path), exist_ok=True)
    try:
        module = importlib.import_module(service)
    except ImportError as error:
        missing = getattr(error, "name", None) in (None, service)
        reply({"error": "the Python package %s is not installed for %s: pip install %s" % (service, sys.executable, service)
               if missing else describe(error)})
        return
    client = CLIENTS[service](module)
    if client.url:
        reply({"url": client.url})
    for line in lines:
        request = json.loads(line)
        if "finish" in request:
            client.finish()
            reply({"finished": True})
            return
        client.log(request["step"], {name: float(value) for name, value in request["metrics"].items()})
    # Without a last word the run was killed; what has come is still handed over.
    client.finish()

try:
    main()
except BaseException as error:
    try:
        reply({"error": describe(error)})
    finally:
        os._exit(1)
)python";

}  // namespace tandem
