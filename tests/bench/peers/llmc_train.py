"""llm.c on a GPT-2 configuration, fp32 on the CPU: llmc_train.py CONFIG BATCH SEQ STEPS

LLMC names a folder of llm.c in which `make train_gpt2` has run. Batch and length are constants of
its main(), so set `int B` and `int T` in train_gpt2.c to those compared before. Weights and tokens
are random and written here in its formats; nothing is downloaded. Prints one JSON line, as
torch_train.py. llm.c does not clip gradients, and validates before its first step.
"""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import numpy


def built_for(folder):
    """Batch and length, as the source has them."""
    source = (folder / "train_gpt2.c").read_text()
    found = [re.search(rf"^\s*int {name} = (\d+);", source, re.MULTILINE) for name in "BT"]
    if not all(found):
        sys.exit("train_gpt2.c does not say for which B and T it is built")
    return tuple(int(match[1]) for match in found)


def write_model(path, config):
    layers, width, vocabulary = config["n_layer"], config["n_embd"], config["vocab_size"]
    padded = -(-vocabulary // 128) * 128
    header = numpy.zeros(256, "<i4")
    header[:8] = (
        20240326,
        3,
        config["n_positions"],
        vocabulary,
        layers,
        config["n_head"],
        width,
        padded,
    )
    generator = numpy.random.default_rng(1)
    square = layers * width * width

    def weights(count):
        return generator.standard_normal(count, "<f4") * numpy.float32(0.02)

    def norm(count):
        return numpy.concatenate([numpy.ones(count, "<f4"), numpy.zeros(count, "<f4")])

    def linear(weight_count, bias_count):
        return numpy.concatenate([weights(weight_count), numpy.zeros(bias_count, "<f4")])

    with open(path, "wb") as file:
        header.tofile(file)
        weights(padded * width).tofile(file)
        weights(config["n_positions"] * width).tofile(file)
        norm(layers * width).tofile(file)
        linear(3 * square, 3 * layers * width).tofile(file)
        linear(square, layers * width).tofile(file)
        norm(layers * width).tofile(file)
        linear(4 * square, 4 * layers * width).tofile(file)
        linear(4 * square, layers * width).tofile(file)
        norm(width).tofile(file)


def write_tokens(folder, count, vocabulary):
    folder.mkdir(parents=True)
    header = numpy.zeros(256, "<i4")
    header[:3] = 20240520, 1, count
    tokens = numpy.random.default_rng(2).integers(0, vocabulary, count).astype("<u2")
    for part in ("train", "val"):
        with open(folder / f"tiny_shakespeare_{part}.bin", "wb") as file:
            header.tofile(file)
            tokens.tofile(file)


def run(program, directory, steps):
    """Seconds of the first steps, and until the first one ended. The program is stopped then."""
    seconds, first = [], None
    began = time.perf_counter()
    process = subprocess.Popen(
        ["stdbuf", "-oL", program], cwd=directory, stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        found = re.match(r"step \d+: train loss \S+ \(took (\S+) ms\)", line)
        if found:
            seconds.append(float(found[1]) / 1000)
            first = first or time.perf_counter() - began
        if len(seconds) == steps:
            break
    process.terminate()
    process.wait()
    if len(seconds) < steps:
        sys.exit(f"train_gpt2 ended with {process.returncode} after {len(seconds)} steps")
    return seconds, first


def main():
    config_file, batch, length, steps = sys.argv[1], *map(int, sys.argv[2:5])
    if "LLMC" not in os.environ:
        sys.exit("LLMC does not name a folder of llm.c")
    folder = pathlib.Path(os.environ["LLMC"]).resolve()
    config = json.loads(pathlib.Path(config_file).read_text())
    if config["model_type"] != "gpt2":
        sys.exit("llm.c has GPT-2 only")
    if not (folder / "train_gpt2").exists():
        sys.exit(f"{folder} has no train_gpt2 (make train_gpt2?)")
    if built_for(folder) != (batch, length):
        sys.exit(f"built for {built_for(folder)}, not {batch} x {length} (see llmc_train.py)")
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        write_model(directory / "gpt2_124M.bin", config)
        tokens = directory / "dev" / "data" / "tinyshakespeare"
        write_tokens(tokens, batch * length * (steps + 1) + 1, config["vocab_size"])
        seconds, first = run(folder / "train_gpt2", directory, steps)
    revision = subprocess.run(
        ["git", "-C", folder, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    print(
        json.dumps(
            {
                "step_seconds": seconds,
                "start_up": first - seconds[0],
                "rss_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
                "versions": f"llm.c {revision or '(no revision)'}",
            }
        )
    )


if __name__ == "__main__":
    main()
