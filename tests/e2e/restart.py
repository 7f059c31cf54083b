"""A run killed at any moment and started again by the same command ends as if never killed."""

import os
import random
import signal
import time

import support

STEPS = 60


class Restart(support.EndToEnd):
    def run_options(self, run, **changes):
        return self.options(
            run,
            train__steps=STEPS,
            checkpoint__every=4,
            checkpoint__keep=2,
            run__peer_timeout=5,
            **changes,
        )

    def kill_once(self, options, ranks, rank, step, delay):
        """Starts the run and kills one rank `delay` seconds after `step` is done; its exit code."""
        command = [*support.launcher(ranks), support.BINARY, "train", *support.words(options)]
        run = options["run.dir"]
        with support.Process(command) as process:
            ended = lambda: process.popen.poll() is not None
            support.wait_until(lambda: len(process.ranks()) == ranks or ended(), what="all ranks")
            processes = process.ranks()
            support.wait_until(
                lambda: support.steps_done(run) >= step or ended(), what=f"{step} steps"
            )
            time.sleep(delay)
            if support.alive(processes[rank]):
                os.kill(processes[rank], signal.SIGKILL)
            result = process.wait(60)
            gone = lambda: not any(map(support.alive, processes))
            support.wait_until(gone, 30, "the end of all ranks")
        return result.code

    def compare(self, run, reference, exact=("loss", "grad_norm", "lr", "tokens")):
        self.assertEqual(support.series(run, *exact), support.series(reference, *exact))
        self.assert_same_tensors(support.checkpoint(run), support.checkpoint(reference))

    def test_twenty_kills_change_no_bit(self):
        moments = random.Random(20261201)
        self.train(self.run_options("whole", **self.on_nvme()), ranks=2)
        killed = 0
        for part in range(4):
            options = self.run_options(f"killed-{part}", **self.on_nvme())
            # The first one dies while it starts, the others later and later.
            steps = [0, *sorted(moments.randrange(1, STEPS - 8) for _ in range(4))]
            for step in steps:
                delay = moments.uniform(0, 0.3 if step == 0 else 0.03)
                killed += self.kill_once(options, 2, moments.randrange(2), step, delay) != 0
            self.train(options, ranks=2)
            with self.subTest(part=part):
                self.compare(self.here / f"killed-{part}", self.here / "whole")
        self.assertGreaterEqual(killed, 16)  # one may come when its run is over already

    def test_bf16_and_a_shuffled_epoch_end_survive_a_kill(self):
        # 13 sequences: epochs end inside of steps.
        support.random_tokens(self.here / "tokens.bin", 13 * 32 + 1, 257)
        common = {"model__dtype": "bf16", **self.on_nvme()}
        self.train(self.run_options("whole", **common), ranks=2)
        options = self.run_options("killed", **common)
        killed = [self.kill_once(options, 2, 1, step, 0.005) for step in (4, 20, 40)]
        self.assertTrue(any(killed))
        self.train(options, ranks=2)
        self.compare(self.here / "killed", self.here / "whole")

    def test_another_number_of_ranks_agrees_to_rounding(self):
        batch = {"train__global_batch": 12}
        self.train(self.run_options("whole", **batch), ranks=2)
        reference = support.series(self.here / "whole", "loss", "grad_norm", "tokens")
        for ranks in (1, 3, 4):
            run = f"to-{ranks}"
            self.train({**self.run_options(run, **batch), "train.steps": 20}, ranks=2)
            self.train(self.run_options(run, **batch), ranks=ranks)
            found = support.series(self.here / run, "loss", "grad_norm", "tokens")
            self.assertEqual(len(found), len(reference))
            for one, other in zip(found, reference):
                with self.subTest(ranks=ranks, step=one[0]):
                    self.assertEqual((one[0], one[3]), (other[0], other[3]))
                    self.assertLess(abs(one[1] / other[1] - 1), 1e-4)
                    self.assertLess(abs(one[2] / other[2] - 1), 1e-3)

    def test_a_finished_run_has_nothing_left_to_do(self):
        options = self.run_options("done")
        self.train(options, ranks=2)
        before = support.metrics(self.here / "done")
        self.train(options, ranks=2)
        self.assertEqual(support.metrics(self.here / "done"), before)


if __name__ == "__main__":
    support.main()
