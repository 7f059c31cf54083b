"""Runs peers and Spillway alternately on the same models, prints a table; for compare.sh.

PyTorch runs the model code of Hugging Face transformers, eager and compiled. A peer that cannot be
run is listed with the reason.
"""

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
    "gpt2-124M-1k": (
        dict(GPT2, vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12),
        4,
        1024,
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


class NotRun(Exception):
    """A peer that is not here, or does not run here."""


def peer(script, model, directory, steps, modes):
    _, batch, length = MODELS[model]
    config = directory / f"{model}.json"
    command = [sys.executable, HERE / "peers" / script, config, batch, length, steps, *modes]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment()
    )
    if done.returncode != 0:
        raise NotRun((done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def torch(*arguments):
    return peer("torch_train.py", *arguments)


def deepspeed(*arguments):
    return peer("deepspeed_train.py", *arguments)


def spillway(model, directory, steps, options, ranks=1):
    _, batch, length = MODELS[model]
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    with tempfile.TemporaryDirectory(dir=directory) as run:
        nvme = pathlib.Path(run) / "nvme"
        nvme.mkdir()
        command = [
            *(launcher if ranks > 1 else []),
            os.environ["SPILLWAY_BINARY"],
            "train",
            f"--model.config={directory / model}.json",
            f"--data.train={directory / model}.bin",
            f"--data.seq_len={length}",
            f"--train.steps={steps}",
            f"--train.global_batch={batch}",
            f"--run.dir={run}/run",
            "--optim.lr=1e-4",
            *(option.format(nvme=nvme, batch=batch, half=batch // 2) for option in options),
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
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = [line["step_ms"] / 1000 for line in lines]
    if ranks > 1:  # of all ranks; a launcher's own is nothing
        peak = ranks * max(line["rss_bytes"] for line in lines)
    return {"step_seconds": seconds, "start_up": first - seconds[0], "rss_bytes": peak}


def variants(precisions):
    memory = ["--offload.params=host", "--offload.optimizer=host", "--offload.gradients=host"]
    disk = [
        "--offload.nvme={nvme}",
        "--offload.params=nvme",
        "--offload.optimizer=nvme",
        "--offload.gradients=nvme",
    ]
    whole = "--train.micro_batch={batch}"
    result = {}
    for precision in precisions:
        modes = ["bf16"] if precision == "bf16" else []
        typed = [f"--model.dtype={precision}"]

        def add(name, run, *more, precision=precision):
            result[f"{name} {precision}"] = lambda *a: run(*a, *more)

        add("PyTorch eager", torch, modes)
        add("PyTorch compile", torch, [*modes, "compile"])
        if precision == "bf16":
            add("DeepSpeed ZeRO-3", deepspeed, modes)
        add("Spillway, memory", spillway, [*memory, *typed, whole])
        add("Spillway, all on disk", spillway, [*disk, *typed, whole])
        two = [*memory, *typed, "--train.micro_batch={half}", "--train.threads=1"]
        add("Spillway, 2 ranks x 1 thread", spillway, two, 2)
    return result


def measure(model, directory, arguments):
    """{variant: [result of each round]}; within a round the variants run one after another."""
    chosen = variants(arguments.precisions.split(","))
    results = {name: [] for name in chosen}
    missing = {}
    for round_number in range(arguments.rounds):
        for name, run in chosen.items():
            if name in missing:
                continue
            print(
                f"# {model}, round {round_number + 1} of {arguments.rounds}: {name}",
                file=sys.stderr,
            )
            try:
                results[name].append(run(model, directory, arguments.steps))
            except NotRun as reason:
                missing[name] = str(reason)
    return {name: rounds for name, rounds in results.items() if rounds}, missing


def gemm_bound(model, directory, precision):
    _, batch, length = MODELS[model]
    command = [
        os.environ["SPILLWAY_BINARY"],
        "bench",
        "gemm",
        f"--config={directory / model}.json",
        f"--batch={batch}",
        f"--seq={length}",
        f"--dtype={precision}",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    return json.loads(done.stdout)["onednn_tokens_per_s"] if done.returncode == 0 else None


def table(model, directory, results, missing):
    _, batch, length = MODELS[model]
    speed = {
        name: [batch * length / min(r["step_seconds"][1:]) for r in rounds]
        for name, rounds in results.items()
    }
    print(f"\n{model}, {batch} x {length} tokens a step; the fastest step after the first\n")
    print(f"| {'':34} | tokens/s (min..max of rounds) | peak RSS | first step after |")
    print(f"| {'-' * 34} | ---: | ---: | ---: |")
    for name, rounds in results.items():
        memory = statistics.median(r["rss_bytes"] for r in rounds) / 2**20
        start = statistics.median(r["start_up"] + r["step_seconds"][0] for r in rounds)
        print(
            f"| {name:34} | {statistics.median(speed[name]):8.0f} "
            f"({min(speed[name]):.0f}..{max(speed[name]):.0f}) "
            f"| {memory:6.0f} MiB | {start:5.2f} s |"
        )
    for name, reason in missing.items():
        print(f"| {name:34} | not run: {reason} | | |")
    for precision in ("bf16", "fp32"):
        ratios(model, directory, precision, speed, results)


def ratios(model, directory, precision, speed, results):
    """Of each round, so that what disturbs the machine disturbs both sides."""
    ours = f"Spillway, memory {precision}"
    peers = [n for n in speed if n.startswith("PyTorch") and n.endswith(precision)]
    if ours not in speed or not peers:
        return
    best = max(peers, key=lambda name: statistics.median(speed[name]))
    ratio = statistics.median(mine / other for mine, other in zip(speed[ours], speed[best]))
    rss = {n: statistics.median(r["rss_bytes"] for r in results[n]) for n in (ours, best)}
    memory = rss[ours] / rss[best]
    words = [f"{ratio:.2f} times the faster of PyTorch's, in {memory:.2f} of its memory"]
    two = f"Spillway, 2 ranks x 1 thread {precision}"
    if two in speed:
        share = statistics.median(a / b for a, b in zip(speed[two], speed[ours]))
        words.append(f"two ranks of one thread reach {share:.2f} of one of two")
    bound = gemm_bound(model, directory, precision)
    if bound:
        reached = statistics.median(speed[ours]) / bound
        words.append(f"{reached:.2f} of the GEMM bound of {bound:.0f} tokens/s")
    print(f"\n{precision}: {'; '.join(words)}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="quickstart,gpt2-124M", help="of " + ", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="the fastest after the first counts")
    parser.add_argument("--precisions", default="bf16,fp32")
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
            results, missing = measure(model, directory, arguments)
            print(*sorted({r[0]["versions"] for r in results.values() if "versions" in r[0]}))
            table(model, directory, results, missing)


if __name__ == "__main__":
    main()
