"""Kills and stops ranks of a real mpirun: the rest must end soon, say why and leave nothing.

usage: lost_rank_test.py MPIRUN PROGRAM
"""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

MPIRUN, PROGRAM = sys.argv[1:3]
RANKS = 3
LIMIT_S = 30.0
TIMEOUT_S = 3.0  # of the program's watchdog


class Job:
    """One mpirun; knows the process ids of its ranks as soon as all have printed theirs."""

    def __init__(self, *orders):
        # What Open MPI itself leaves behind when it is killed goes away with this directory.
        self.scratch = tempfile.TemporaryDirectory(prefix="spl", ignore_cleanup_errors=True)
        environment = dict(os.environ, TMPDIR=self.scratch.name,
                           OMPI_MCA_btl_vader_backing_directory=self.scratch.name)
        self.process = subprocess.Popen(
            [MPIRUN, "--oversubscribe", "-np", str(RANKS), PROGRAM, *map(str, orders)], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env=environment)
        self.pids = {}
        self.errors = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr))
        self.reader.start()
        while len(self.pids) < RANKS:
            words = self.process.stdout.readline().split()
            if not words:
                raise RuntimeError("the ranks did not start: " + "".join(self.errors))
            self.pids[int(words[1])] = int(words[3])

    def send(self, rank, what):
        os.kill(self.pids[rank], what)

    def end(self, limit=LIMIT_S):
        try:
            code = self.process.wait(limit)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                for pid in self.pids.values():
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            self.reader.join()
            self.process.stdout.close()
            self.process.stderr.close()
            self.scratch.cleanup()
        return code

    def text(self):
        return "".join(self.errors)

    def running(self):
        """Ranks whose process exists, be it stopped; zombies are dead."""
        alive = []
        for rank, pid in self.pids.items():
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    if stat.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                        alive.append(rank)
            except FileNotFoundError:
                pass
        return alive

    def left(self):
        """Ranks that still run some seconds after mpirun's end."""
        end = time.monotonic() + 10
        while self.running() and time.monotonic() < end:
            time.sleep(0.05)
        return self.running()


class LostRank(unittest.TestCase):
    def lose(self, what, rank, moment, *orders):
        job = Job(*orders)
        time.sleep(moment)
        start = time.monotonic()
        job.send(rank, what)
        code = job.end()
        took = time.monotonic() - start
        self.assertNotEqual(code, 0, job.text())
        self.assertEqual(job.left(), [])
        self.assertLess(took, LIMIT_S)
        return code, job.text()

    def test_killed_ranks_end_the_run(self):
        for i, moment in enumerate((0.0, 0.013, 0.1, 0.31)):
            with self.subTest(rank=i % RANKS, moment=moment):
                self.lose(signal.SIGKILL, i % RANKS, moment, "messages", i % 2)

    def test_stopped_ranks_end_the_run_with_a_message_that_names_rank_and_phase(self):
        for i, moment in enumerate((0.0, 0.017, 0.11, 0.5)):
            rank = i % RANKS
            with self.subTest(rank=rank, moment=moment):
                code, text = self.lose(signal.SIGSTOP, rank, moment, "messages", i % 2)
                self.assertEqual(code, 6, text)
                self.assertIn(f"rank {rank} on ", text)
                self.assertIn("has stopped answering", text)
                if moment > 0.2:
                    self.assertRegex(text, 'in "step [0-9]+, (reduce-scatter|all-gather|barrier)"')
                self.assertEqual(text.count("ALARM"), 1, text)

    def test_ranks_end_themselves_when_mpirun_does_not_answer_to_an_abort(self):
        job = Job()
        os.kill(job.process.pid, signal.SIGSTOP)
        job.send(1, signal.SIGSTOP)
        start = time.monotonic()
        while job.running() != [1] and time.monotonic() - start < LIMIT_S:
            time.sleep(0.05)
        self.assertEqual(job.running(), [1])
        os.kill(job.process.pid, signal.SIGCONT)
        self.assertNotEqual(job.end(), 0, job.text())
        self.assertEqual(job.left(), [])

    def test_ranks_end_when_mpirun_is_killed(self):
        job = Job()
        job.process.kill()
        job.end()
        self.assertEqual(job.left(), [])

    def test_a_rank_that_is_slow_for_twice_the_timeout_is_no_alarm(self):
        job = Job("steps", 5, "delayed_rank", 1, "delay_ms", int(2000 * TIMEOUT_S))
        self.assertEqual(job.end(), 0, job.text())
        self.assertNotIn("ALARM", job.text())

    def test_a_job_that_is_suspended_and_continued_goes_on(self):
        job = Job("steps", 2000)
        time.sleep(0.2)
        for rank in range(RANKS):
            job.send(rank, signal.SIGSTOP)
        time.sleep(2 * TIMEOUT_S)
        for rank in range(RANKS):
            job.send(rank, signal.SIGCONT)
        self.assertEqual(job.end(120), 0, job.text())
        self.assertNotIn("ALARM", job.text())

    def test_a_rank_that_fails_speaks_for_itself(self):
        job = Job("failing_rank", 1)
        self.assertEqual(job.end(), 5, job.text())
        self.assertEqual(job.left(), [])
        self.assertIn("the disk has failed", job.text())
        self.assertNotIn("ALARM", job.text())

    def test_without_mpirun_it_is_a_run_of_one_rank(self):
        done = subprocess.run([PROGRAM, "steps", "3"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split()[:2], ["rank", "0"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
