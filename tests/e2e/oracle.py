"""Losses, gradient norms and weights of ten steps against PyTorch in float64 (tests/data/e2e)."""

import json

import numpy

import support

CASES = (
    "gpt2-odd",
    "gpt2-deep",
    "llama-grouped",
    "llama-tied",
    "mistral-window",
    "qwen2-upper",
    "qwen3-biased",
    "mixtral-three",
    "mixtral-eight",
)


class Oracle(support.EndToEnd):
    def run_case(self, name, ranks, **changes):
        run, expected = self.run_program(name, ranks, **changes)
        self.compare(self.here / run, expected)

    def run_program(self, name, ranks, **changes):
        folder = support.DATA / "e2e" / name
        expected = json.loads((folder / "expected.json").read_text())
        run = f"{name}-{ranks}"
        options = self.options(
            run,
            model__path=folder,
            data__train=folder / "tokens.bin",
            data__shuffle=False,
            data__seq_len=expected["seq_len"],
            train__steps=expected["steps"],
            train__global_batch=expected["global_batch"],
            **changes,
        )
        del options["model.config"]
        self.train(options, ranks=ranks)
        return run, expected

    def compare(self, run, expected):
        lines = support.metrics(run)
        self.assertEqual([line["step"] for line in lines], list(range(1, expected["steps"] + 1)))
        curves = {"loss": expected["losses"], "grad_norm": expected["grad_norms"]}
        if "aux_losses" in expected:
            curves["aux_loss"] = expected["aux_losses"]
        for index, line in enumerate(lines):
            self.assertEqual("aux_loss" in line, "aux_losses" in expected)
            within = 1e-5 if index == 0 else 1e-4
            for key, values in curves.items():
                self.assertLess(
                    abs(line[key] / values[index] - 1),
                    within,
                    f"{key} of step {index + 1} in {run}",
                )
        self.assertEqual(
            lines[-1]["tokens"], expected["steps"] * expected["global_batch"] * expected["seq_len"]
        )
        self.compare_weights(run, expected)

    def compare_weights(self, run, expected):
        found = support.tensors(support.checkpoint(run))
        self.assertEqual(
            {name for name in found if name.startswith("model/")},
            {f"model/{name}" for name in expected["final"]},
        )
        for name, reference in expected["final"].items():
            tensor = found[f"model/{name}"].flatten().astype(numpy.float64)
            if name.endswith("attn.c_attn.bias"):
                continue  # its key part has no gradient but rounding, blown up by AdamW
            self.assertLess(abs(numpy.linalg.norm(tensor) / reference["norm"] - 1), 1e-4, name)
            for place, value in zip(reference["places"], reference["values"]):
                self.assertAlmostEqual(tensor[place], value, delta=1e-4, msg=f"{name}[{place}]")

    def test_one_rank_matches(self):
        for name in CASES:
            with self.subTest(name):
                self.run_case(name, ranks=1)

    def test_two_ranks_with_all_state_on_disk_match(self):
        for name in CASES:
            with self.subTest(name):
                self.run_case(name, ranks=2, **self.on_nvme())

    def test_four_ranks_match(self):
        for name in CASES[:1] + CASES[2:3] + CASES[4:]:
            with self.subTest(name):
                self.run_case(name, ranks=4)

    def test_four_ranks_with_all_state_on_disk_match(self):
        for name in ("mistral-window", "qwen2-upper", "qwen3-biased", "mixtral-three"):
            with self.subTest(name):
                self.run_case(name, ranks=4, **self.on_nvme())

    def test_bf16_stays_near_the_curve(self):
        # Of the value, over ten steps: bf16 rounds to 2^-8.
        losses_within, norms_within = 2**-10, 2**-5
        for name in CASES:
            with self.subTest(name):
                run, expected = self.run_program(name, ranks=1, model__dtype="bf16")
                for line, loss, norm in zip(
                    support.metrics(self.here / run), expected["losses"], expected["grad_norms"]
                ):
                    self.assertLess(abs(line["loss"] / loss - 1), losses_within, line)
                    self.assertLess(abs(line["grad_norm"] / norm - 1), norms_within, line)

    def test_larger_micro_batches_and_waves_match(self):
        for name in ("gpt2-deep", "llama-tied"):
            for micro, wave in ((4, 1), (2, 1), (1, 2)):
                with self.subTest(name, micro=micro, wave=wave):
                    self.run_case(name, ranks=1, train__micro_batch=micro, train__wave=wave)

    def test_larger_micro_batches_do_not_show_in_the_balance_of_experts(self):
        for micro, ranks in ((4, 1), (2, 1), (2, 2)):
            with self.subTest(micro=micro, ranks=ranks):
                self.run_case("mixtral-three", ranks=ranks, train__micro_batch=micro)

    def test_waves_have_the_mean_of_their_balances(self):
        _, expected = self.run_program("mixtral-three", ranks=1, train__wave=2)
        line = support.metrics(self.here / "mixtral-three-1")[0]
        self.assertLess(abs(line["loss"] / expected["losses"][0] - 1), 1e-5)
        for key, value in expected["halves"].items():
            self.assertLess(abs(line[key] / value - 1), 1e-5, key)
        self.assertGreater(abs(line["aux_loss"] / expected["aux_losses"][0] - 1), 1e-4)


if __name__ == "__main__":
    support.main()
