"""Where state lives, how much is recomputed and which engine moves it changes no bit."""

import support


class Placement(support.EndToEnd):
    def compare(self, variants, ranks, keys=("loss", "grad_norm", "lr", "tokens"), **common):
        """Each variant of the options gives metrics and final weights of the first, exactly."""
        reference = None
        for name, changes in variants.items():
            run = f"{name}-{ranks}"
            self.train(self.options(run, **{**common, **changes}), ranks=ranks)
            found = support.series(self.here / run, *keys)
            self.assertEqual(len(found), 6)
            if reference is None:
                reference = run, found
                continue
            with self.subTest(name, ranks=ranks):
                self.assertEqual(found, reference[1])
                self.assert_same_tensors(
                    support.checkpoint(self.here / reference[0]),
                    support.checkpoint(self.here / run),
                )

    def places(self):
        nvme = self.here / "nvme"
        nvme.mkdir(exist_ok=True)
        all_host = {f"offload__{kind}": "host" for kind in ("params", "optimizer", "gradients")}
        return {
            "memory": all_host,
            "disk": self.on_nvme(),
            "params-on-disk": {**all_host, "offload__params": "nvme", "offload__nvme": nvme},
            "optimizer-on-disk": {**all_host, "offload__optimizer": "nvme", "offload__nvme": nvme},
            "gradients-on-disk": {**all_host, "offload__gradients": "nvme", "offload__nvme": nvme},
            "disk-by-threads": self.on_nvme(offload__engine="threads"),
            "disk-without-checksums": self.on_nvme(offload__checksums="off"),
        }

    def test_fp32_is_the_same_wherever_state_lives(self):
        self.compare(self.places(), ranks=2)

    def test_bf16_is_the_same_wherever_state_lives(self):
        self.compare(self.places(), ranks=2, model__dtype="bf16")

    def test_llama_with_an_odd_vocabulary_is_the_same_on_disk(self):
        support.llama_config(self.here / "config.json", vocab_size=257, tie_word_embeddings=False)
        places = self.places()
        self.compare(
            {name: places[name] for name in ("memory", "disk")}, ranks=3, train__global_batch=3
        )

    def test_experts_are_the_same_wherever_state_lives_and_however_much_is_recomputed(self):
        support.mixtral_config(self.here / "config.json")
        places = self.places()
        variants = {name: places[name] for name in ("memory", "disk", "disk-by-threads")}
        for mode in ("none", "selective", "full"):
            variants[mode] = {**places["memory"], "train__recompute": mode}
        for dtype in ("fp32", "bf16"):
            with self.subTest(dtype):
                self.compare(
                    {f"{dtype}-{name}": changes for name, changes in variants.items()},
                    ranks=2,
                    keys=("loss", "grad_norm", "aux_loss", "lr", "tokens"),
                    model__dtype=dtype,
                )

    def test_recomputing_is_the_same_as_keeping(self):
        modes = {mode: {"train__recompute": mode} for mode in ("none", "selective", "full", "auto")}
        self.compare(modes, ranks=1)

    def test_two_directories_are_the_same_as_one(self):
        for name in ("a", "b"):
            (self.here / name).mkdir()
        both = f"{self.here / 'a'},{self.here / 'b'}"
        self.compare({"one": self.on_nvme(), "two": self.on_nvme(offload__nvme=both)}, ranks=2)


if __name__ == "__main__":
    support.main()
