"""A global batch gives the same step however it is cut into micro-batches, waves and ranks."""

import numpy

import support


class Accumulation(support.EndToEnd):
    BATCH = {"train__global_batch": 8, "train__steps": 3, "optim__lr": 5e-5}

    def compare(self, run, reference):
        for one, other in zip(
            support.series(run, "loss", "grad_norm"), support.series(reference, "loss", "grad_norm")
        ):
            self.assertEqual(one[0], other[0])
            for key, left, right in zip(("loss", "grad_norm"), one[1:], other[1:]):
                self.assertLess(abs(left / right - 1), 1e-6, f"{key} of step {one[0]}")
        left, right = (support.tensors(support.checkpoint(run)) for run in (run, reference))
        self.assertEqual(sorted(left), sorted(right))
        for name in left:
            if name.endswith("c_attn.bias"):  # the keys' part has no gradient but rounding
                continue
            difference = left[name] - right[name]
            if name.startswith("model/"):
                # Adam turns the rounding of a gradient near zero into a part of lr: few elements.
                self.assertLess(numpy.abs(difference).max(), 0.1 * self.BATCH["optim__lr"], name)
                self.assertLess(numpy.sqrt(numpy.mean(difference**2)), 5e-8, name)
            if name.startswith("optimizer/m/"):
                relative = numpy.linalg.norm(difference) / numpy.linalg.norm(right[name])
                self.assertLess(relative, 1e-5, name)

    def cut(self, name, ranks=1, **changes):
        self.train(self.options(name, **self.BATCH, **changes), ranks=ranks)
        if name != "1x8":
            with self.subTest(name):
                self.compare(self.here / name, self.here / "1x8")

    def test_eight_sequences_are_eight_sequences(self):
        self.cut("1x8", train__micro_batch=8)
        self.cut("2x4", train__micro_batch=4)
        self.cut("4x2", train__micro_batch=2)
        self.cut("8x1", train__micro_batch=1)
        self.cut("waves", train__micro_batch=1, train__wave=2)
        self.cut("disk", train__micro_batch=1, **self.on_nvme())
        self.cut("two-ranks", ranks=2, train__micro_batch=2)
        self.cut("four-ranks", ranks=4, train__micro_batch=1, **self.on_nvme())


if __name__ == "__main__":
    support.main()
