"""Runs peers and Spillway alternately on the same models, prints a table; for compare.sh.

PyTorch runs the model code of Hugging Face transformers, and of a GPT-2 plain modules of our own,
each eager and compiled; llm.c takes part where
LLMC names its folder (see peers/llmc_train.py). What cannot be run is listed with the reason.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import re
import shutil
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
    "llama-100M": (
        dict(
            model_type="llama",
            architectures=["LlamaForCausalLM"],
            vocab_size=32000,
            hidden_size=768,
            intermediate_size=2048,
            num_hidden_layers=8,
            num_attention_heads=12,
            num_key_value_heads=4,
            max_position_embeddings=1024,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            tie_word_embeddings=False,
            bos_token_id=0,
            eos_token_id=0,
        ),
        4,
        256,
    ),
    "quickstart": (
        dict(GPT2, vocab_size=257, n_positions=256, n_embd=320, n_layer=8, n_head=5),
        8,
        256,
    ),
    # The same 10 million parameters with a short step: what counts is when the first one ends.
    "start-10M": (
        dict(GPT2, vocab_size=257, n_positions=256, n_embd=320, n_layer=8, n_head=5),
        1,
        256,
    ),
}

# Model code that PyTorch runs, with the words that torch_train.py takes for it.
PYTORCH = {"PyTorch Hugging Face": [], "PyTorch plain": ["plain"]}


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


def half_of_threads():
    return max(1, len(os.sched_getaffinity(0)) // 2)


class Others:
    """What processes that are not ours take of the processors, since this was made."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        own = os.times()
        busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        return busy - sum(own[:4]), own.elapsed

    def share(self):
        (busy, clock), (busy_before, clock_before) = self.now(), self.begin
        return max(0, busy - busy_before) / (clock - clock_before) / os.cpu_count()


def environment():
    result = dict(os.environ, OMP_NUM_THREADS=str(len(os.sched_getaffinity(0))))
    if os.geteuid() == 0:
        result.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return result


class NotRun(Exception):
    """What is not here, or does not run here."""

    def __init__(self, text):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        super().__init__(lines[-1] if lines else "no message")


def peer(script, model, directory, steps, modes):
    _, batch, length = MODELS[model]
    config = directory / f"{model}.json"
    command = [sys.executable, HERE / "peers" / script, config, batch, length, steps, *modes]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment()
    )
    if done.returncode != 0:
        raise NotRun(done.stderr or f"ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def torch(*arguments):
    return peer("torch_train.py", *arguments)


def deepspeed(*arguments):
    return peer("deepspeed_train.py", *arguments)


def llmc(*arguments):
    return peer("llmc_train.py", *arguments)


def watch(process, metrics):
    """When the first step was written (None: never), exit code, peak resident bytes."""
    began, first, pid = time.perf_counter(), None, 0
    while pid == 0:
        pid, status, usage = os.wait4(process.pid, 0 if first else os.WNOHANG)
        if first is None and metrics.exists() and metrics.stat().st_size > 0:
            first = time.perf_counter() - began
        elif pid == 0:
            time.sleep(0.001)
    process.returncode = os.waitstatus_to_exitcode(status)
    return first, process.returncode, usage.ru_maxrss * 1024


def spillway(model, directory, steps, options, ranks=1):
    _, batch, length = MODELS[model]
    if ranks > batch:
        raise NotRun(f"{ranks} ranks have no {batch} sequences")
    if ranks > 1 and not shutil.which("mpirun"):
        raise NotRun("no mpirun")
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
        metrics = pathlib.Path(run) / "run" / "metrics.jsonl"
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=errors, env=environment()
            )
            first, code, peak = watch(process, metrics)
            if code != 0 or first is None:
                errors.seek(0)
                raise NotRun(errors.read() or f"ended with {code}")
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

        for code, more in PYTORCH.items():
            add(f"{code} eager", torch, [*modes, *more])
            add(f"{code} compile", torch, [*modes, *more, "compile"])
        if precision == "bf16":
            add("DeepSpeed ZeRO-3", deepspeed, modes)
        else:
            add("llm.c", llmc, modes)
        add("Spillway, memory", spillway, [*memory, *typed, whole])
        add("Spillway, all on disk", spillway, [*disk, *typed, whole])
        two = [
            *memory,
            *typed,
            "--train.micro_batch={half}",
            f"--train.threads={half_of_threads()}",
        ]
        add("Spillway, 2 ranks", spillway, two, 2)
    return result


def measure(model, directory, arguments):
    """{variant: [result of each round]}, {variant: why not}. Every other round goes backwards."""
    chosen = variants(arguments.precisions.split(","))
    results = {name: [] for name in chosen}
    missing = {}
    for round_number in range(arguments.rounds):
        for name in list(chosen)[:: -1 if round_number % 2 else 1]:
            if name in missing:
                continue
            print(
                f"# {model}, round {round_number + 1} of {arguments.rounds}: {name}",
                file=sys.stderr,
            )
            try:
                results[name].append(chosen[name](model, directory, arguments.steps))
            except NotRun as reason:
                missing[name] = str(reason)
    for name in missing:  # one that stopped running would have fewer rounds than the rest
        del results[name]
    return results, missing


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
    if done.returncode != 0:
        raise NotRun(done.stderr or f"ended with {done.returncode}")
    return json.loads(done.stdout)["onednn_tokens_per_s"]


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


def beside_pytorch(code, ours, precision, speed, results):
    """Beside the faster of eager and compiled."""
    peers = [n for n in speed if n.startswith(code) and n.endswith(precision)]
    if not peers:
        print(f"  no {code} to compare with (see above)")
        return
    best = max(peers, key=lambda name: statistics.median(speed[name]))
    ratio = statistics.median(mine / other for mine, other in zip(speed[ours], speed[best]))
    rss = {n: statistics.median(r["rss_bytes"] for r in results[n]) for n in (ours, best)}
    print(f"  {ratio:.2f} times {best}, the faster of that code, in ", end="")
    print(f"{rss[ours] / rss[best]:.2f} of its memory")


def ratios(model, directory, precision, speed, results):
    """Of each round, so that what disturbs the machine disturbs both sides."""
    ours = f"Spillway, memory {precision}"
    if ours not in speed:
        return
    print(f"\n{precision}:")
    for code in PYTORCH:
        beside_pytorch(code, ours, precision, speed, results)
    two = f"Spillway, 2 ranks {precision}"
    if two in speed:
        share = statistics.median(a / b for a, b in zip(speed[two], speed[ours]))
        each = half_of_threads()
        print(f"  two ranks of {each} threads each reach {share:.0%} of one rank of {2 * each}")
    try:
        bound = gemm_bound(model, directory, precision)
        share = statistics.median(speed[ours]) / bound
        print(f"  {share:.0%} of the GEMM bound, {bound:.0f} tokens/s by oneDNN's products alone")
    except NotRun as reason:
        print(f"  GEMM bound: not run: {reason}")


def write_inputs(model, directory, steps):
    config, batch, length = MODELS[model]
    (directory / f"{model}.json").write_text(json.dumps(config))
    generator = random.Random(1)
    tokens = (
        generator.randrange(config["vocab_size"]).to_bytes(2, "little")
        for _ in range(batch * length * steps + 1)
    )
    (directory / f"{model}.bin").write_bytes(b"".join(tokens))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="quickstart,gpt2-124M", help="of " + ", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="the fastest after the first counts")
    parser.add_argument("--precisions", default="bf16,fp32")
    arguments = parser.parse_args()
    if arguments.steps < 2 or arguments.rounds < 1:
        parser.error("at least two steps and one round are needed")
    for model in arguments.models.split(","):
        if model not in MODELS:
            parser.error(f"no model {model} (there are {', '.join(MODELS)})")
    broken = False
    with tempfile.TemporaryDirectory(prefix="spillway-compare-") as name:
        directory = pathlib.Path(name)
        versions = subprocess.run(
            [os.environ["SPILLWAY_BINARY"], "--version"], capture_output=True, text=True
        ).stdout
        print(f"Processor: {processor()}\nKernel: {platform.release()}\n{versions.strip()}")
        for model in arguments.models.split(","):
            write_inputs(model, directory, arguments.steps)
            others = Others()
            results, missing = measure(model, directory, arguments)
            share = others.share()
            broken |= any(name.startswith("Spillway, memory") for name in missing)
            print(*sorted({r[0]["versions"] for r in results.values() if "versions" in r[0]}))
            table(model, directory, results, missing)
            if share > 0.05:
                print(f"\nNot to be trusted: others used {share:.0%} of the processors meanwhile.")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
