"""The memory budget holds as the kernel counts it, on every rank, also while saving and loading."""

import os
import pathlib
import time

import support

MIB = 1 << 20


class Memory(support.EndToEnd):
    LAYERS = (
        40  # of 12 x 256^2 parameters: 31.5 M in all, 480 MiB of weights, moments and gradients
    )
    STATE = 16 * LAYERS * 12 * 256 * 256

    def setUp(self):
        super().setUp()
        support.gpt2_config(self.here / "config.json", n_embd=256, n_layer=self.LAYERS, n_head=4)

    def limited(self, run, budget, **changes):
        return self.options(
            run,
            train__steps=3,
            checkpoint__every=2,
            train__global_batch=2,
            offload__host_memory=f"{budget // MIB}MiB",
            offload__nvme=self.nvme(),
            **changes,
        )

    def nvme(self):
        directory = self.here / "nvme"
        directory.mkdir(exist_ok=True)
        return directory

    def peaks(self, options, ranks):
        """Runs to the end; VmHWM of every rank as last seen, polled from outside."""
        command = [*support.launcher(ranks), support.BINARY, "train", *support.words(options)]
        peaks = {}
        with support.Process(command) as process:
            while process.popen.poll() is None:
                for pid in process.ranks():
                    peaks[pid] = max(peaks.get(pid, 0), self.high_water(pid))
                time.sleep(0.005)
            result = process.wait()
        self.assertEqual(result.code, 0, str(result))
        self.assertEqual(len(peaks), ranks)
        return list(peaks.values())

    def high_water(self, pid):
        try:
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        except OSError:
            pass  # it has just ended
        return 0

    def check(self, peaks, budget):
        for peak in peaks:
            self.assertGreater(peak, 10 * MIB)
            self.assertLessEqual(peak, budget, f"{peak / MIB:.1f} MiB of {budget / MIB:.0f} MiB")

    def test_four_times_more_state_than_memory_stays_within_it(self):
        budget = self.STATE // 4
        options = self.limited("run", budget)
        self.check(self.peaks(options, ranks=1), budget)
        # Started again, it loads the checkpoint within the same budget and goes on.
        options["train.steps"] = 4
        self.check(self.peaks(options, ranks=1), budget)
        self.assertEqual(len(support.metrics(self.here / "run")), 4)

    def test_each_of_two_ranks_keeps_its_budget(self):
        budget = 96 * MIB
        self.check(self.peaks(self.limited("run", budget, model__dtype="bf16"), ranks=2), budget)

    def test_a_budget_that_cannot_be_kept_is_refused_before_the_first_step(self):
        result = self.train(self.limited("run", 8 * MIB), code=support.NO_ROOM)
        self.assert_one_message(result, "offload.host_memory")
        self.assertEqual(support.steps_done(self.here / "run"), 0)
        self.assertEqual(os.listdir(self.nvme()), [])


if __name__ == "__main__":
    support.main()
