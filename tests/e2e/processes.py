"""Ranks that die or stop, signals, switch files: a run ends as a whole, or stops where asked to."""

import os
import pathlib
import signal
import time

import support

LONG = 100000  # steps of a run that is ended from outside


class Processes(support.EndToEnd):
    def start(self, options, ranks=2):
        command = [*support.launcher(ranks), support.BINARY, "train", *support.words(options)]
        process = support.Process(command)
        self.addCleanup(process.__exit__)
        support.wait_until(lambda: support.steps_done(options["run.dir"]) >= 2, what="two steps")
        self.assertEqual(len(process.ranks()), ranks)
        return process

    def ends_within(self, process, processes, seconds):
        began = time.monotonic()
        result = process.wait(seconds)
        support.wait_until(
            lambda: not any(map(support.alive, processes)), seconds, "the end of all ranks"
        )
        self.assertLess(time.monotonic() - began, seconds)
        return result

    def test_a_stopped_rank_ends_the_run(self):
        for rank in (0, 1):
            process = self.start(
                self.options(f"stopped-{rank}", train__steps=LONG, run__peer_timeout=3)
            )
            processes = process.ranks()
            os.kill(processes[rank], signal.SIGSTOP)
            result = self.ends_within(process, processes, 30)
            self.assertNotEqual(result.code, 0, str(result))
            self.assert_one_message(result, f"rank {rank}")

    def test_a_killed_rank_ends_the_run(self):
        for rank in (0, 1, 2):
            options = self.options(
                f"killed-{rank}", train__steps=LONG, train__global_batch=3, run__peer_timeout=3
            )
            process = self.start(options, ranks=3)
            processes = process.ranks()
            os.kill(processes[rank], signal.SIGKILL)
            result = self.ends_within(process, processes, 30)
            self.assertNotEqual(result.code, 0, str(result))

    def test_no_swap_space_is_left_behind_by_a_kill(self):
        process = self.start(
            self.options("run", train__steps=LONG, run__peer_timeout=3, **self.on_nvme())
        )
        processes = process.ranks()
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
        self.ends_within(process, processes, 30)
        left = sum(
            file.stat().st_blocks
            for file in pathlib.Path(self.here / "nvme").rglob("*")
            if file.is_file()
        )
        self.assertLessEqual(left * 512, 8192)

    def goes_on_as_if_never_stopped(self, options, ranks):
        """Runs `options` for 4 more steps, and another run to the same step in one go."""
        done = support.metrics(options["run.dir"])[-1]["step"]
        options = {**options, "train.steps": done + 4}
        self.train(options, ranks=ranks)
        self.train({**options, "run.dir": self.here / "whole"}, ranks=ranks)
        keys = ("loss", "grad_norm", "tokens")
        self.assertEqual(
            support.series(options["run.dir"], *keys), support.series(self.here / "whole", *keys)
        )
        self.assert_same_tensors(
            support.checkpoint(options["run.dir"]), support.checkpoint(self.here / "whole")
        )

    def test_usr1_to_mpirun_saves_and_leaves_with_85(self):
        options = self.options("run", train__steps=LONG, **self.on_nvme())
        process = self.start(options)
        processes = process.ranks()
        process.popen.send_signal(signal.SIGUSR1)
        result = self.ends_within(process, processes, 30)
        self.assertEqual(result.code, 85, str(result))
        step = support.metrics(self.here / "run")[-1]["step"]
        self.assertEqual(os.readlink(support.checkpoint(self.here / "run")), f"step-{step:09d}")
        self.goes_on_as_if_never_stopped(options, ranks=2)

    def test_term_to_one_rank_saves_and_leaves_with_85(self):
        options = self.options("run", train__steps=LONG)
        process = self.start(options)
        processes = process.ranks()
        os.kill(processes[1], signal.SIGTERM)
        result = self.ends_within(process, processes, 30)
        self.assertEqual(result.code, 85, str(result))

    def test_a_file_named_stop_saves_and_leaves_with_85(self):
        options = self.options("run", train__steps=LONG)
        process = self.start(options)
        processes = process.ranks()
        (self.here / "run" / "STOP").touch()
        result = self.ends_within(process, processes, 30)
        self.assertEqual(result.code, 85, str(result))
        self.assertFalse((self.here / "run" / "STOP").exists())  # used up: the next start is to run
        self.goes_on_as_if_never_stopped(options, ranks=2)

    def test_a_file_named_save_saves_and_goes_on(self):
        options = self.options("run", train__steps=LONG)
        process = self.start(options)
        (self.here / "run" / "SAVE").touch()
        support.wait_until(
            lambda: support.checkpoint(self.here / "run").exists(), 30, "a checkpoint"
        )
        done = support.steps_done(self.here / "run")
        support.wait_until(
            lambda: support.steps_done(self.here / "run") > done + 2, 30, "more steps"
        )
        self.assertFalse((self.here / "run" / "SAVE").exists())
        process.popen.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(30).code, 85)

    def test_a_time_limit_saves_and_leaves_with_85(self):
        result = self.train(
            self.options("run", train__steps=LONG, run__max_time="2s"), ranks=2, code=85
        )
        self.assertTrue(support.checkpoint(self.here / "run").exists(), str(result))

    def test_two_runs_in_one_directory_of_swap_do_not_meet(self):
        alone, together = {}, {}
        for name in ("a", "b"):
            seed = {"a": 1, "b": 2}[name]
            alone[name] = self.options(
                f"alone-{name}", model__seed=seed, train__steps=12, **self.on_nvme()
            )
            together[name] = {**alone[name], "run.dir": self.here / f"together-{name}"}
            self.train(alone[name], ranks=2)
        started = [
            support.Process(
                [*support.launcher(2), support.BINARY, "train", *support.words(options)]
            )
            for options in together.values()
        ]
        for process in started:
            self.addCleanup(process.__exit__)
        for process in started:
            result = process.wait()
            self.assertEqual(result.code, 0, str(result))
        for name in ("a", "b"):
            self.assertEqual(
                support.series(self.here / f"alone-{name}", "loss", "grad_norm"),
                support.series(self.here / f"together-{name}", "loss", "grad_norm"),
            )
            self.assert_same_tensors(
                support.checkpoint(self.here / f"alone-{name}"),
                support.checkpoint(self.here / f"together-{name}"),
            )

    def test_two_runs_in_one_run_directory_are_refused(self):
        options = self.options("run", train__steps=LONG)
        self.start(options)
        result = self.train(options, ranks=2, code=support.USAGE)
        self.assert_one_message(result, self.here / "run")


if __name__ == "__main__":
    support.main()
