"""A run whose disk is lost goes on from object storage: object_store.py PROGRAM MOTO_SERVER. Standard library only."""
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

from driver import REWARD, expect, in_temporary_folder, lines, run, settings, write
from tiny_model import write_model

SERVER = os.path.abspath(sys.argv[2])
STEPS = 6


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url, process):
    for _ in range(600):
        expect(process.poll() is None, "the S3 server ended")
        try:
            return urllib.request.urlopen(url, timeout=1).read()
        except OSError:
            time.sleep(0.05)
    expect(False, "the S3 server does not answer")


def weights(folder):
    with open(f"{folder}/checkpoints/global_step_{STEPS}/actor/huggingface/model.safetensors", "rb") as file:
        return file.read()


def main():
    port = free_port()
    server = subprocess.Popen([SERVER, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing", AWS_REGION="us-east-1",
                          AWS_EC2_METADATA_DISABLED="true")
        wait_for(f"http://127.0.0.1:{port}/", server)
        request = urllib.request.Request(f"http://127.0.0.1:{port}/runs", method="PUT",
                                         headers={"Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/"
                                                                   "us-east-1/s3/aws4_request"})
        urllib.request.urlopen(request, timeout=10).read()
        store = f"s3://runs/mine?endpoint_override=127.0.0.1:{port}&scheme=http"
        write_model("model")
        write("reward.py", REWARD)
        run("data", "arithmetic", "--out", "data", "--seed", "3")
        remote = dict(trainer__checkpoint__remote_path=store, trainer__checkpoint__remote_freq=2)
        run(*settings("whole", steps=STEPS))
        output = run(*settings("lost", steps=4, **remote))
        expect("did not get to" not in output, "an upload failed", output)
        shutil.rmtree("lost")
        output = run(*settings("lost", steps=STEPS, **remote))
        expect("resuming after step 4" in output, "the run did not find its checkpoint in object storage", output)
        expect(weights("lost") == weights("whole"), "other weights after resuming from object storage", output)
        server.kill()
        server.wait()
        output = run(*settings("alone", steps=2, **remote, trainer__resume_mode="disable"))
        expect("did not get to" in output and os.path.isdir("alone/checkpoints/global_step_2"),
               "without its object storage a run goes on, and says so", output)
        expect(lines("alone/metrics.jsonl")[-1]["step"] == 2, "a step is missing")
    finally:
        server.kill()
        server.wait()
    print("object storage: ok")


in_temporary_folder(main)
