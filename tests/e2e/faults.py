"""Full disks, missing permission, damaged checkpoints, wrong input: one message, right code."""

import contextlib
import json
import os
import pathlib
import shutil
import stat
import subprocess

import support
from support import BAD_INPUT, IO, NO_ROOM, USAGE


class FullDisk(support.EndToEnd):
    @contextlib.contextmanager
    def small_disk(self, size):
        """A file system with room for `size` bytes."""
        directory = self.here / "small"
        directory.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", str(directory)]
        subprocess.run(mount, check=True)
        try:
            yield directory
        finally:
            subprocess.run(["umount", "-l", str(directory)], check=True)

    def limited_files(self, size):
        """Words before the program: its files may not grow beyond `size` bytes."""
        return ["prlimit", f"--fsize={size}"]

    def may_mount(self):
        probe = self.here / "probe"
        probe.mkdir()
        mounted = (
            subprocess.run(
                ["mount", "-t", "tmpfs", "tmpfs", str(probe)], capture_output=True
            ).returncode
            == 0
        )
        if mounted:
            subprocess.run(["umount", "-l", str(probe)], check=True)
        return mounted

    def test_swap_space_that_does_not_fit_is_refused_before_the_first_step(self):
        """A disk that is too small where one can be made, else a limit on the size of files."""
        if self.may_mount():
            with self.small_disk(1 << 20) as nvme:
                options = self.options("run", **{**self.on_nvme(), "offload__nvme": nvme})
                result = self.train(options, ranks=2, code=NO_ROOM)
                self.assert_one_message(result, nvme)
        options = self.options("run", **self.on_nvme())
        alone = support.environment(OMPI_MCA_btl="self")  # no shared-memory file of MPI's
        result = self.train(
            options, ranks=1, env=alone, wrapper=self.limited_files(1000000), code=NO_ROOM
        )
        self.assert_one_message(result, self.here / "nvme")
        self.assertEqual(support.steps_done(self.here / "run"), 0)

    def test_a_disk_without_room_for_one_checkpoint_is_refused_before_the_first_step(self):
        if not self.may_mount():  # the same fault, by a limit on files, is the next test's
            self.fill_by_limit()
            return
        with self.small_disk(1 << 20) as disk:
            options = self.options("run", checkpoint__dir=disk / "checkpoints")
            result = self.train(options, ranks=2, code=NO_ROOM)
            self.assert_one_message(result, disk, "are missing")
            self.assertEqual(support.steps_done(self.here / "run"), 0)

    def test_a_disk_that_fills_up_while_saving_leaves_the_older_checkpoint_good(self):
        self.train(self.options("whole", checkpoint__every=2), ranks=2)
        one = sum(
            f.stat().st_size for f in support.checkpoint(self.here / "whole").resolve().iterdir()
        )
        if not self.may_mount():
            self.fill_by_limit()
            return
        with self.small_disk(one * 7 // 2) as disk:
            options = self.options(
                "run",
                checkpoint__every=2,
                checkpoint__dir=disk / "checkpoints",
                checkpoint__keep=1,
                train__steps=2,
            )
            self.train(options, ranks=2)
            filler = disk / "filler"
            filler.write_bytes(bytes(one * 17 // 10))
            options["train.steps"] = 6
            result = self.train(options, ranks=2, code=NO_ROOM)
            self.assert_one_message(result, disk)
            self.assertEqual(os.readlink(disk / "checkpoints" / "latest"), "step-000000002")
            support.tensors(disk / "checkpoints" / "latest")
            filler.unlink()
            self.train(options, ranks=2)
            self.assert_same_tensors(
                disk / "checkpoints" / "latest", support.checkpoint(self.here / "whole")
            )
            self.assertEqual(
                support.series(self.here / "run", "loss"),
                support.series(self.here / "whole", "loss"),
            )

    def fill_by_limit(self):
        options = self.options("run", train__steps=2)
        self.train(options, ranks=1)
        alone = support.environment(OMPI_MCA_btl="self")
        options["train.steps"] = 4
        self.train(options, ranks=1, env=alone, wrapper=self.limited_files(1000000), code=NO_ROOM)
        self.assertEqual(os.readlink(support.checkpoint(self.here / "run")), "step-000000002")
        support.tensors(support.checkpoint(self.here / "run"))


class Permission(support.EndToEnd):
    def without_privilege(self):
        """Words and environment that run a command as a user whom permissions bind."""
        if os.geteuid() != 0:
            return [], support.environment()
        self.here.chmod(0o755)
        shutil.copy(support.BINARY, self.here / "spillway")
        home = self.here / "home"
        home.mkdir()
        os.chown(home, 65534, 65534)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        environment = support.environment(HOME=str(home), TMPDIR=str(home))
        return user, environment

    def run_without_privilege(self, options):
        prefix, environment = self.without_privilege()
        binary = self.here / "spillway" if prefix else support.BINARY
        command = [*prefix, *support.launcher(2), binary, "train", *support.words(options)]
        with support.Process(command, env=environment, cwd=self.here) as process:
            return process.wait()

    def refused(self, options, code, path):
        result = self.run_without_privilege(options)
        self.assertEqual(result.code, code, str(result))
        self.assert_one_message(result, path, "Permission denied")

    def closed(self, name, mode):
        directory = self.here / name
        directory.mkdir(exist_ok=True)
        directory.chmod(mode)
        self.addCleanup(directory.chmod, 0o755)
        return directory

    def writable(self, name):
        directory = self.here / name
        directory.mkdir()
        directory.chmod(0o777)
        return directory

    def test_a_swap_directory_without_permission_is_named(self):
        nvme = self.closed("nvme", 0o555)
        self.writable("run")
        self.refused(self.options("run", **self.on_nvme()), IO, nvme)

    def test_a_run_directory_without_permission_is_named(self):
        run = self.closed("run", 0o555)
        self.refused(self.options("run"), IO, run)

    def test_a_token_file_without_permission_is_named(self):
        self.writable("run")
        options = self.options("run")
        options["data.train"].chmod(0)
        self.refused(options, BAD_INPUT, options["data.train"])


class DamagedCheckpoints(support.EndToEnd):
    """Two checkpoints, of steps 3 and 6; the run goes on to step 9."""

    def setUp(self):
        super().setUp()
        if not self.TRAINED:
            type(self).TRAINED = self.train_once()
        shutil.copytree(self.TRAINED, self.here, dirs_exist_ok=True, symlinks=True)
        self.checkpoints = self.here / "run" / "checkpoints"
        self.newest = self.checkpoints / "step-000000006"

    TRAINED = None  # directory with the runs that all cases begin with

    def train_once(self):
        for run, steps in (("whole", 9), ("run", 6)):
            changes = {"checkpoint__every": 3, "checkpoint__keep": 0}
            self.train(self.options(run, train__steps=steps, **changes), ranks=2)
        trained = self.here.with_name(self.here.name + "-trained")
        shutil.move(self.here, trained)
        self.addClassCleanup(shutil.rmtree, trained)
        self.here.mkdir()
        return trained

    def go_on(self, **changes):
        options = self.options(
            "run", train__steps=9, checkpoint__every=3, checkpoint__keep=0, **changes
        )
        return support.train(options, ranks=2)

    def goes_on_from_the_older_one(self, *named):
        result = self.go_on()
        self.assertEqual(result.code, 0, str(result))
        self.assert_one_message(result, *named)
        keys = ("loss", "grad_norm", "tokens")
        self.assertEqual(
            support.series(self.here / "run", *keys), support.series(self.here / "whole", *keys)
        )
        self.assert_same_tensors(
            support.checkpoint(self.here / "run"), support.checkpoint(self.here / "whole")
        )

    def is_refused_where_it_is_asked_for(self, *named):
        result = self.go_on(checkpoint__resume=self.newest)
        self.assertEqual(result.code, BAD_INPUT, str(result))
        self.assert_one_message(result, *named)

    def damage(self, change):
        shard = self.newest / "shard-00001-of-00002.h5"
        content = bytearray(shard.read_bytes())
        shard.write_bytes(change(content))
        return shard.name

    def test_a_shard_cut_by_one_byte(self):
        name = self.damage(lambda content: content[:-1])
        self.is_refused_where_it_is_asked_for(name)
        self.goes_on_from_the_older_one(name)

    def test_a_shard_cut_in_half(self):
        name = self.damage(lambda content: content[: len(content) // 2])
        self.is_refused_where_it_is_asked_for(name)
        self.goes_on_from_the_older_one(name)

    def test_one_flipped_bit_in_a_weight(self):
        def flip(content):
            content[len(content) // 2] ^= 0x10  # well inside of the data: metadata is a few KiB
            return content

        name = self.damage(flip)
        self.is_refused_where_it_is_asked_for(name)
        self.goes_on_from_the_older_one(name)

    def test_a_missing_shard(self):
        (self.newest / "shard-00000-of-00002.h5").unlink()
        self.is_refused_where_it_is_asked_for("shard-00000-of-00002.h5")
        self.goes_on_from_the_older_one("shard-00000-of-00002.h5")

    def test_an_index_that_is_none(self):
        (self.newest / "index.h5").write_bytes(b"not an HDF5 file")
        self.is_refused_where_it_is_asked_for("index.h5")
        self.goes_on_from_the_older_one("index.h5")

    def test_an_empty_directory_with_a_later_number(self):
        (self.checkpoints / "step-000000999").mkdir()
        shutil.rmtree(self.newest)
        self.goes_on_from_the_older_one("step-000000999")

    def test_what_a_killed_save_left_is_named_and_removed(self):
        leftover = self.checkpoints / "step-000000009.tmp"
        leftover.mkdir()
        (leftover / "shard-00000-of-00002.h5").write_bytes(b"half")
        self.goes_on_from_the_older_one("step-000000009.tmp")
        self.assertFalse(leftover.exists())

    def test_no_good_checkpoint_at_all_is_an_error_and_not_a_fresh_start(self):
        for directory in self.checkpoints.glob("step-*"):
            os.truncate(directory / "shard-00000-of-00002.h5", 100)
        result = self.go_on()
        self.assertEqual(result.code, BAD_INPUT, str(result))
        self.assert_one_message(result, "shard-00000-of-00002.h5")

    def test_a_checkpoint_of_another_model_is_refused(self):
        support.gpt2_config(self.here / "config.json", n_layer=2)
        result = self.go_on()
        self.assertEqual(result.code, BAD_INPUT, str(result))


class WrongInput(support.EndToEnd):
    def refused(self, code, *pieces, ranks=2, **changes):
        result = self.train(self.options("run", **changes), ranks=ranks, code=code)
        self.assert_one_message(result, *pieces)
        self.assertEqual(support.steps_done(self.here / "run"), 0)

    def test_an_unknown_key_names_the_closest_one(self):
        self.refused(USAGE, "optim.warmup_step", "optim.warmup_steps", optim__warmup_step=3)

    def test_a_value_that_is_none_names_key_and_value(self):
        self.refused(USAGE, "train.steps", "many", train__steps="many")

    def test_a_batch_that_cannot_be_shared_out(self):
        self.refused(USAGE, "train.global_batch", "5", train__global_batch=5)

    def test_a_missing_token_file(self):
        missing = self.here / "nowhere.bin"
        self.refused(BAD_INPUT, missing, data__train=missing)

    def test_a_pattern_without_files(self):
        self.refused(BAD_INPUT, "nothing-*.bin", data__train=self.here / "nothing-*.bin")

    def test_a_token_file_with_an_odd_byte(self):
        odd = self.here / "odd.bin"
        odd.write_bytes(bytes(1001))
        self.refused(BAD_INPUT, odd, data__train=odd)

    def test_a_token_file_that_is_too_short(self):
        short = support.random_tokens(self.here / "short.bin", 32, 257)  # 32 inputs need 33 tokens
        self.refused(BAD_INPUT, short, data__train=short)

    def test_a_token_beyond_the_vocabulary(self):
        large = support.random_tokens(self.here / "large.bin", 2000, 300)
        self.refused(BAD_INPUT, large, "257", data__train=large)

    def test_sequences_longer_than_the_model_has_positions(self):
        self.refused(BAD_INPUT, "65", "64", data__seq_len=65)

    def test_a_missing_model(self):
        missing = self.here / "nowhere.json"
        self.refused(BAD_INPUT, missing, model__config=missing)

    def test_model_configurations_that_are_not_supported(self):
        refusals = {
            "bert": (support.gpt2_config, {"model_type": "bert"}),
            "relu": (support.gpt2_config, {"activation_function": "relu"}),
            "n_head": (support.gpt2_config, {"n_head": 5}),
            "vocab_size": (support.gpt2_config, {"vocab_size": 0}),
            "longrope": (
                support.llama_config,
                {"rope_scaling": {"rope_type": "longrope", "factor": 4.0}},
            ),
            "gelu": (support.llama_config, {"hidden_act": "gelu"}),
            "num_key_value_heads": (support.llama_config, {"num_key_value_heads": 3}),
        }
        for piece, (write, changes) in refusals.items():
            with self.subTest(piece):
                config = write(self.here / f"{piece}.json", **changes)
                self.refused(BAD_INPUT, piece, config.name, ranks=1, model__config=config)

    def test_a_configuration_that_is_no_json(self):
        broken = self.here / "broken.json"
        broken.write_text(json.dumps({"model_type": "gpt2"})[:-1])
        self.refused(BAD_INPUT, broken, model__config=broken)

    def test_a_model_folder_with_a_cut_weight_file(self):
        folder = self.here / "model"
        shutil.copytree(support.DATA / "e2e" / "gpt2-odd", folder)
        weights = folder / "model.safetensors"
        weights.chmod(weights.stat().st_mode | stat.S_IWUSR)
        os.truncate(weights, weights.stat().st_size - 1)
        options = self.options("run", model__path=folder, data__train=folder / "tokens.bin")
        del options["model.config"]
        result = self.train(options, ranks=2, code=BAD_INPUT)
        self.assert_one_message(result, pathlib.Path(weights).name)


if __name__ == "__main__":
    support.main()
