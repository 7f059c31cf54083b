"""PyTorch on a config.json: torch_train.py CONFIG BATCH SEQ STEPS [bf16] [compile] [plain]

The model code is that of Hugging Face transformers, or with `plain` our own of a GPT-2 (see
plain_gpt2.py). One process, AdamW (fused), clipping at 1, random weights and tokens. Prints one
JSON line: seconds of every step, when the first one began after the start of the process, peak
resident bytes, versions. Waits for nothing from the network.
"""

import json
import os
import resource
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"


def process_age():
    """Seconds since this process was started, with the interpreter's own start-up."""
    with open("/proc/self/stat") as file:
        started = int(file.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def make_model(config, plain):
    """The model, and the version of its code."""
    if plain:
        if config["model_type"] != "gpt2":
            sys.exit("the plain modules are a GPT-2 only")
        import plain_gpt2

        return plain_gpt2.PlainGpt2(config), "plain"
    import transformers

    config = transformers.AutoConfig.for_model(**{**config, "use_cache": False})
    model = transformers.AutoModelForCausalLM.from_config(config)
    return model, f"transformers {transformers.__version__}"


def main():
    config_file, batch, length, steps = sys.argv[1], *map(int, sys.argv[2:5])
    modes = sys.argv[5:]
    import torch

    torch.manual_seed(0)
    with open(config_file) as file:
        config = json.load(file)
    model, code = make_model(config, "plain" in modes)
    model.train()
    run = torch.compile(model) if "compile" in modes else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    generator = torch.Generator().manual_seed(1)
    seconds, start_up = [], process_age()
    for _ in range(steps):
        tokens = torch.randint(0, config["vocab_size"], (batch, length), generator=generator)
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled="bf16" in modes):
            loss = run(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - begin)
    print(
        json.dumps(
            {
                "step_seconds": seconds,
                "start_up": start_up,
                "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "versions": f"torch {torch.__version__}, {code}",
            }
        )
    )


if __name__ == "__main__":
    main()
