#!/usr/bin/env python3
"""llama.cpp's own server, as the package xllamacpp ships it built: llama_server.py MODEL.gguf PORT THREADS SLOTS.

Its cache is float32, like a model file of that precision (gguf_to_f32.py makes one).
"""
import sys
import time

import xllamacpp


def main(model, port, threads, slots):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.port = int(port)
    parameters.hostname = "127.0.0.1"
    parameters.n_parallel = int(slots)
    parameters.n_ctx = 512 * int(slots)
    parameters.cont_batching = True
    parameters.n_threads_http = 300
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = int(threads)
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)


main(*sys.argv[1:])
