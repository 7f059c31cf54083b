"""A step that is not finite is skipped by all ranks alike, counted and never hidden."""

import json
import shutil
import struct

import numpy

import support

DIVERGED = 7
T = 32
POISON = 255


class Divergence(support.EndToEnd):
    """A model whose embedding of one token is NaN; data has the token where a test wants it."""

    def setUp(self):
        super().setUp()
        self.model = self.here / "model"
        shutil.copytree(support.DATA / "oracle" / "tiny-llama", self.model)
        self.model.chmod(0o755)
        self.poison_embedding(self.model / "model.safetensors")

    def poison_embedding(self, path):
        path.chmod(0o644)
        data = bytearray(path.read_bytes())
        (length,) = struct.unpack("<Q", data[:8])
        entry = json.loads(data[8 : 8 + length])["model.embed_tokens.weight"]
        self.assertEqual(entry["dtype"], "F32")
        width = entry["shape"][1] * 4
        begin = 8 + length + entry["data_offsets"][0] + POISON * width
        data[begin : begin + 4] = struct.pack("<f", float("nan"))
        path.write_bytes(data)

    def tokens(self, name, sequences, poisoned=()):
        generator = numpy.random.Generator(numpy.random.PCG64(5))
        values = generator.integers(0, POISON, sequences * T + 1).astype("<u2")
        for sequence in poisoned:
            values[sequence * T + 3] = POISON
        values.tofile(self.here / name)
        return self.here / name

    def run_on(self, tokens, run, ranks, **changes):
        options = self.options(run, data__train=tokens, data__shuffle=False, **changes)
        options["model.path"] = self.model
        del options["model.config"]
        return options

    def test_one_nan_on_one_of_four_ranks_skips_the_step_on_all(self):
        data = self.tokens("poisoned.bin", 12, poisoned=[1])
        options = self.run_on(data, "run", 4, train__steps=3, **self.on_nvme())
        result = self.train(options, ranks=4)
        lines = support.metrics(self.here / "run")
        self.assertEqual([line["skipped"] for line in lines], [1, 0, 0])
        self.assertIsNone(lines[0]["loss"])
        self.assertEqual(lines[0]["loss_text"], "nan")
        self.assertIn("step 1", result.err)
        self.assertIn("not finite", result.err)
        # The second step starts from untouched weights: as a run that begins with its sequences.
        later = self.here / "later.bin"
        numpy.fromfile(data, "<u2")[4 * T :].tofile(later)
        self.train(self.run_on(later, "clean", 4, train__steps=2), ranks=4)
        clean = support.metrics(self.here / "clean")
        for poisoned, expected in zip(lines[1:], clean):
            self.assertEqual(poisoned["loss"], expected["loss"])
            self.assertEqual(poisoned["grad_norm"], expected["grad_norm"])

    def test_too_many_in_a_row_end_the_run_with_the_good_checkpoint_kept(self):
        data = self.tokens("poisoned.bin", 40, poisoned=range(8, 40))
        options = self.run_on(
            data, "run", 2, train__steps=10, train__max_skipped=2, checkpoint__every=1
        )
        result = self.train(options, ranks=2, code=DIVERGED)
        self.assert_one_message(result, "train.max_skipped", "diverged")
        lines = support.metrics(self.here / "run")
        self.assertEqual([line["skipped"] for line in lines], [0, 0, 1, 1, 1])
        good = self.here / "run" / "checkpoints" / "step-000000002"
        self.assertEqual(support.spillway("ckpt", "verify", good).code, 0)

    def test_a_checkpoint_after_a_skipped_step_holds_the_state_before_it(self):
        data = self.tokens("poisoned.bin", 12, poisoned=[4])
        options = self.run_on(data, "run", 2, train__steps=2, checkpoint__every=1)
        self.train(options, ranks=2)
        checkpoints = self.here / "run" / "checkpoints"
        self.assert_same_tensors(checkpoints / "step-000000001", checkpoints / "step-000000002")


if __name__ == "__main__":
    support.main()
