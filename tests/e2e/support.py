"""What the end-to-end tests share: running the program under mpirun, its results, its ranks."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import numpy

BINARY = pathlib.Path(os.environ["SPILLWAY_BINARY"]).resolve()
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"

# Exit codes of DESIGN.md section 7.
USAGE, BAD_INPUT, NO_ROOM, IO, PEER = 2, 3, 4, 5, 6


def environment(**more):
    """Environment of a run: root may start it, and idle ranks let the others work."""
    result = dict(
        os.environ, OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive"
    )
    if os.geteuid() == 0:
        result.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    for name in [name for name in result if name.startswith("SLURM_")]:
        del result[name]
    result.update(more)
    return result


def launcher(ranks):
    """Words before the program's own: none for a rank that is started alone."""
    if ranks is None:
        return []
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]


def words(options):
    """{"train.steps": 3} as command line flags."""
    return [
        f"--{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in options.items()
    ]


class Result:
    """How a process ended and what it wrote."""

    def __init__(self, code, out, err, command):
        self.code, self.out, self.err, self.command = code, out, err, command

    def __str__(self):
        return f"exit {self.code} of {' '.join(map(str, self.command))}\n{self.out}\n{self.err}"


class Process:
    """A started command in a session of its own; leaving the `with` block ends what is left."""

    def __init__(self, command, env=None, **popen):
        self.command = command
        self.out, self.err = (tempfile.TemporaryFile("w+", errors="replace") for _ in range(2))
        self.popen = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.err,
            env=env or environment(),
            start_new_session=True,
            **popen,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.ranks():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self.out.close()
        self.err.close()

    def ranks(self):
        """Process ids of the program's processes below this one, in the order they were started."""
        return [pid for pid in sorted(descendants(self.popen.pid)) if executable(pid) == BINARY]

    def wait(self, timeout=120):
        try:
            code = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s: {self.text()}") from None
        return Result(code, *self.text(), self.command)

    def text(self):
        texts = []
        for file in (self.out, self.err):
            file.seek(0)
            texts.append(file.read())
        return texts


def parent_of(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, ValueError):
        return None


def descendants(root):
    parents = {int(entry): parent_of(entry) for entry in os.listdir("/proc") if entry.isdigit()}
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def executable(pid):
    """The program a process runs; None for one that is gone or a zombie."""
    try:
        return pathlib.Path(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return None


def alive(pid):
    return executable(pid) == BINARY


def spillway(*arguments, ranks=None, timeout=120, env=None, wrapper=(), **popen):
    """Runs the program to its end; each rank is started by the words of `wrapper`."""
    command = [*launcher(ranks), *wrapper, BINARY, *arguments]
    with Process(command, env=env, **popen) as process:
        return process.wait(timeout)


def train(options, ranks=1, **more):
    return spillway("train", *words(options), ranks=ranks, **more)


def metrics(run):
    """The lines of metrics.jsonl. Numbers read back to the doubles printed, so == is exact."""
    lines = (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def series(run, *keys):
    """Per step a tuple of the given metrics."""
    return [tuple(line[key] for key in ("step", *keys)) for line in metrics(run)]


def steps_done(run):
    """Lines of metrics.jsonl so far; 0 while there is no such file."""
    try:
        return (pathlib.Path(run) / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def checkpoint(run, name="latest"):
    return pathlib.Path(run) / "checkpoints" / name


def tensors(directory):
    """Every tensor of a checkpoint by its path in index.h5; bf16 is float32 to h5py."""
    found = {}

    def visit(path, item):
        if isinstance(item, h5py.Dataset) and path.startswith(("model/", "optimizer/")):
            found[path] = item[()].astype(numpy.float32)

    with h5py.File(pathlib.Path(directory) / "index.h5", "r") as file:
        file.visititems(visit)
    assert found, f"no tensors in {directory}"
    return found


def random_tokens(path, count, vocabulary, seed=11):
    """A headerless uint16 token file."""
    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    generator.integers(0, vocabulary, count).astype("<u2").tofile(path)
    return path


def gpt2_config(path, **changes):
    """config.json of a small GPT-2."""
    config = dict(
        model_type="gpt2",
        architectures=["GPT2LMHeadModel"],
        vocab_size=257,
        n_positions=64,
        n_embd=64,
        n_layer=3,
        n_head=4,
        n_inner=None,
        activation_function="gelu_new",
        layer_norm_epsilon=1e-5,
        initializer_range=0.02,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        tie_word_embeddings=True,
    )
    config.update(changes)
    pathlib.Path(path).write_text(json.dumps(config))
    return path


def llama_config(path, **changes):
    """config.json of a small Llama with grouped heads."""
    config = dict(
        model_type="llama",
        architectures=["LlamaForCausalLM"],
        vocab_size=257,
        hidden_size=64,
        intermediate_size=136,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        hidden_act="silu",
        initializer_range=0.02,
        tie_word_embeddings=False,
        attention_bias=False,
        mlp_bias=False,
    )
    config.update(changes)
    pathlib.Path(path).write_text(json.dumps(config))
    return path


def mixtral_config(path, **changes):
    """config.json of a small mixture of experts whose balance is trained on."""
    return llama_config(
        path,
        **{
            "model_type": "mixtral",
            "architectures": ["MixtralForCausalLM"],
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "output_router_logits": True,
            "router_aux_loss_coef": 0.02,
            "initializer_range": 0.1,
            **changes,
        },
    )


class EndToEnd(unittest.TestCase):
    """A test case with a directory of its own that goes away."""

    def setUp(self):
        self.here = pathlib.Path(tempfile.mkdtemp(prefix="spillway-e2e-"))
        self.addCleanup(shutil.rmtree, self.here, ignore_errors=True)

    def options(self, run, **changes):
        """A small complete configuration; keys of `changes` are written with __ for the dot."""
        config, tokens = self.here / "config.json", self.here / "tokens.bin"
        if not config.exists():
            gpt2_config(config)
        if not tokens.exists():
            random_tokens(tokens, 40 * 32 + 1, 257)
        options = {
            "model.config": config,
            "data.train": tokens,
            "data.seq_len": 32,
            "train.steps": 6,
            "train.global_batch": 4,
            "train.micro_batch": 1,
            "train.threads": 1,
            "optim.lr": 1e-3,
            "optim.schedule": "constant",
            "run.dir": self.here / run,
        }
        options.update({key.replace("__", "."): value for key, value in changes.items()})
        return options

    def on_nvme(self, **more):
        """All state on disk, in a directory of this test."""
        nvme = self.here / "nvme"
        nvme.mkdir(exist_ok=True)
        return {
            "offload__nvme": nvme,
            "offload__params": "nvme",
            "offload__optimizer": "nvme",
            "offload__gradients": "nvme",
            **more,
        }

    def train(self, options, ranks=1, code=0, **more):
        """Runs to the end and expects an exit code."""
        result = train(options, ranks=ranks, **more)
        self.assertEqual(result.code, code, str(result))
        return result

    def assert_same_tensors(self, one, other):
        """Bit for bit, NaN included."""
        left, right = tensors(one), tensors(other)
        self.assertEqual(sorted(left), sorted(right))
        for name in left:
            self.assertEqual(left[name].shape, right[name].shape, name)
            self.assertEqual(
                left[name].tobytes(), right[name].tobytes(), f"{name} of {one} and {other}"
            )

    def assert_one_message(self, result, *pieces):
        """stderr holds one error, with all these pieces in it."""
        for piece in pieces:
            self.assertIn(str(piece), result.err, str(result))
        self.assertNotIn("terminate called", result.err, str(result))


def wait_until(condition, timeout=60, what="a condition"):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {timeout} s for {what}")
        time.sleep(0.002)


def main():
    sys.dont_write_bytecode = True
    unittest.main(verbosity=2)
