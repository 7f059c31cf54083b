"""Runs PyTorch and Spillway alternately on the same models, prints a table; for compare.sh."""

import argparse
import json
import os
import pathlib
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
GPT2 = dict(
    model_type="gpt2",
    architectures=["GPT2LMHeadModel"],
    activation_function="gelu_new",
    layer_norm_epsilon=1e-5,
    initializer_range=0.02,
    attn_pdrop=0.0,
    embd_pdrop=0.0,
    resid_pdrop=0.0,
    tie_word_embeddings=True,
    bos_token_id=0,
    eos_token_id=0,
)
MODELS = {
    "gpt2-124M": (
        dict(GPT2, vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12),
        4,
        256,
    ),
    "quickstart": (
        dict(GPT2, vocab_size=257, n_positions=256, n_embd=320, n_layer=8, n_head=5),
        8,
        256,
    ),
}


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"model name\s*: (.*)", text)
    flags = re.search(r"flags\s*: (.*)", text)
    wide = [
        flag
        for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
        if flags and flag in flags[1].split()
    ]
    name = found[1] if found else platform.machine()
    return f"{name}, {len(os.sched_getaffinity(0))} threads, {' '.join(wide)}"


def environment():
    result = dict(os.environ, OMP_NUM_THREADS=str(len(os.sched_getaffinity(0))))
    if os.geteuid() == 0:
        result.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return result


def peak_of(process):
    """Waits for a process; its exit code, peak resident bytes as the kernel counts them."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024


def torch(model, directory, steps, modes):
    _, batch, length = MODELS[model]
    config = directory / f"{model}.json"
    command = [
        sys.executable,
        HERE / "peers" / "torch_train.py",
        config,
        batch,
        length,
        steps,
        *modes,
    ]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment()
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def spillway(model, directory, steps, options):
    _, batch, length = MODELS[model]
    with tempfile.TemporaryDirectory(dir=directory) as run:
        nvme = pathlib.Path(run) / "nvme"
        nvme.mkdir()
        command = [
            os.environ["SPILLWAY_BINARY"],
            "train",
            f"--model.config={directory / model}.json",
            f"--data.train={directory / model}.bin",
            f"--data.seq_len={length}",
            f"--train.steps={steps}",
            f"--train.global_batch={batch}",
            f"--run.dir={run}/run",
            "--optim.lr=1e-4",
            *(option.format(nvme=nvme, batch=batch) for option in options),
        ]
        began = time.perf_counter()
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=errors, env=environment()
            )
            metrics, first = pathlib.Path(run) / "run" / "metrics.jsonl", None
            while first is None and process.poll() is None:
                if metrics.exists() and metrics.stat().st_size > 0:
                    first = time.perf_counter() - began
                time.sleep(0.001)
            code, peak = peak_of(process) if process.returncode is None else (process.returncode, 0)
            if code != 0:
                errors.seek(0)
                raise SystemExit(f"{' '.join(command)} ended with {code}:\n{errors.read()}")
        seconds = [json.loads(line)["step_ms"] / 1000 for line in metrics.read_text().splitlines()]
    return {"step_seconds": seconds, "start_up": first - seconds[0], "rss_bytes": peak}


def variants(with_bf16):
    memory = ["--offload.params=host", "--offload.optimizer=host", "--offload.gradients=host"]
    disk = [
        "--offload.nvme={nvme}",
        "--offload.params=nvme",
        "--offload.optimizer=nvme",
        "--offload.gradients=nvme",
    ]
    result = {
        "PyTorch fp32 eager": lambda *a: torch(*a, []),
        "PyTorch fp32 compile": lambda *a: torch(*a, ["compile"]),
        "Spillway fp32, memory": lambda *a: spillway(*a, [*memory, "--train.micro_batch={batch}"]),
        "Spillway fp32, all state on disk": lambda *a: spillway(
            *a, [*disk, "--train.micro_batch={batch}"]
        ),
    }
    if with_bf16:
        result.update(
            {
                "PyTorch bf16 eager": lambda *a: torch(*a, ["bf16"]),
                "PyTorch bf16 compile": lambda *a: torch(*a, ["bf16", "compile"]),
                "Spillway bf16, memory": lambda *a: spillway(
                    *a, [*memory, "--train.micro_batch={batch}", "--model.dtype=bf16"]
                ),
                "Spillway bf16, all state on disk": lambda *a: spillway(
                    *a, [*disk, "--train.micro_batch={batch}", "--model.dtype=bf16"]
                ),
            }
        )
    return result


def measure(model, directory, arguments):
    """{variant: [result of each round]}; within a round the variants run one after another."""
    chosen = variants(arguments.bf16)
    results = {name: [] for name in chosen}
    for round_number in range(arguments.rounds):
        for name, run in chosen.items():
            print(
                f"# {model}, round {round_number + 1} of {arguments.rounds}: {name}",
                file=sys.stderr,
            )
            results[name].append(run(model, directory, arguments.steps))
    return results


def table(model, results):
    _, batch, length = MODELS[model]
    speed = {
        name: [batch * length / min(r["step_seconds"][1:]) for r in rounds]
        for name, rounds in results.items()
    }
    base = speed["PyTorch fp32 eager"]
    print(f"\n{model}, {batch} x {length} tokens a step\n")
    print(
        f"| {'':34} | tokens/s (min..max of rounds) | ratio to eager fp32 | peak RSS | start-up |"
    )
    print(f"| {'-' * 34} | ---: | ---: | ---: | ---: |")
    for name, rounds in results.items():
        ratio = statistics.median(mine / eager for mine, eager in zip(speed[name], base))
        memory = statistics.median(r["rss_bytes"] for r in rounds) / 2**20
        start = statistics.median(r["start_up"] for r in rounds)
        print(
            f"| {name:34} | {statistics.median(speed[name]):8.0f} "
            f"({min(speed[name]):.0f}..{max(speed[name]):.0f}) "
            f"| {ratio:5.2f} | {memory:6.0f} MiB | {start:5.2f} s |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="quickstart,gpt2-124M", help="of " + ", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="the fastest after the first counts")
    parser.add_argument("--bf16", action="store_true", help="bf16 as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spillway-compare-") as name:
        directory = pathlib.Path(name)
        versions = subprocess.run(
            [os.environ["SPILLWAY_BINARY"], "--version"], capture_output=True, text=True
        ).stdout
        print(f"Processor: {processor()}\nKernel: {platform.release()}\n{versions.strip()}")
        for model in arguments.models.split(","):
            config, batch, length = MODELS[model]
            (directory / f"{model}.json").write_text(json.dumps(config))
            generator = random.Random(1)
            tokens = (
                generator.randrange(config["vocab_size"])
                for _ in range(batch * length * arguments.steps + 1)
            )
            (directory / f"{model}.bin").write_bytes(
                b"".join(t.to_bytes(2, "little") for t in tokens)
            )
            results = measure(model, directory, arguments)
            print(results["PyTorch fp32 eager"][0]["versions"])
            table(model, results)


if __name__ == "__main__":
    main()
