"""From text to text: tokenize, train on two ranks, generate; what was learnt comes back."""

import subprocess

import numpy

import support

SENTENCE = "Then said the wolf unto the seven kids: open the door. "


class Text(support.EndToEnd):
    def tokenize(self, text):
        source, tokens = self.here / "text.txt", self.here / "text.bin"
        source.write_text(text)
        result = support.spillway("tokenize", f"--out={tokens}", source)
        self.assertEqual(result.code, 0, str(result))
        return tokens

    def learn(self, run, **changes):
        support.gpt2_config(self.here / "config.json", n_layer=2, vocab_size=257)
        options = self.options(
            run,
            data__train=self.tokenize(SENTENCE * 80),
            data__seq_len=64,
            train__steps=120,
            train__global_batch=8,
            train__micro_batch=4,
            optim__lr=5e-3,
            optim__warmup_steps=5,
            **changes,
        )
        self.train(options, ranks=2)

    def generate(self, run, *flags, prompt=SENTENCE[:12], tokens=60):
        where = support.checkpoint(self.here / run)
        words = ["--checkpoint", where, "--prompt", prompt, "--tokens", tokens, *flags]
        result = support.spillway("generate", *words)
        self.assertEqual(result.code, 0, str(result))
        return result.out

    def test_what_was_learnt_by_heart_comes_back(self):
        for dtype in ("fp32", "bf16"):
            with self.subTest(dtype):
                self.learn(dtype, model__dtype=dtype, **self.on_nvme())
                first, last = (support.metrics(self.here / dtype)[i]["loss"] for i in (0, -1))
                self.assertAlmostEqual(first, numpy.log(257), delta=0.3)
                self.assertLess(last, 0.2)
                text = self.generate(dtype, "--temperature", 0, tokens=len(SENTENCE))
                self.assertEqual(text, SENTENCE + SENTENCE[:12] + "\n")

    def test_a_seed_gives_the_same_sample_again(self):
        self.learn("run")
        flags = ["--temperature", 2, "--top-k", 0, "--seed"]
        samples = [self.generate("run", *flags, seed) for seed in (1, 2, 1)]
        self.assertEqual(samples[0], samples[2])
        self.assertNotEqual(samples[0], samples[1])

    def test_other_programs_read_the_checkpoint(self):
        self.learn("run")
        index = support.checkpoint(self.here / "run") / "index.h5"
        name = "/model/transformer.ln_f.weight"
        dump = subprocess.run(
            ["h5dump", "-y", "-w", "1", "-d", name, index], capture_output=True, text=True
        )
        self.assertEqual(dump.returncode, 0, dump.stderr)
        numbers = dump.stdout.split("DATA {")[1].split("}")[0].replace(",", " ").split()
        read = support.tensors(index.parent)[name[1:]]
        self.assertEqual(read.shape, (64,))
        numpy.testing.assert_allclose([float(number) for number in numbers], read, rtol=1e-5)


if __name__ == "__main__":
    support.main()
