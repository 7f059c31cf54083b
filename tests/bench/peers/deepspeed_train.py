"""DeepSpeed ZeRO-3 on a config.json, on the CPU: deepspeed_train.py CONFIG BATCH SEQ STEPS

One process, bf16, all state in memory, random weights and tokens. Prints one JSON line, as
torch_train.py does.
"""

import json
import os
import resource
import sys
import time

os.environ.update(
    DS_ACCELERATOR="cpu",
    HF_HUB_OFFLINE="1",
    MASTER_ADDR="127.0.0.1",
    MASTER_PORT="29511",
    RANK="0",
    LOCAL_RANK="0",
    WORLD_SIZE="1",
)


def process_age():
    """Seconds since this process was started, with the interpreter's own start-up."""
    with open("/proc/self/stat") as file:
        started = int(file.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def main():
    config_file, batch, length, steps = sys.argv[1], *map(int, sys.argv[2:5])
    import deepspeed
    import torch
    import transformers

    torch.manual_seed(0)
    with open(config_file) as file:
        config = transformers.AutoConfig.for_model(**{**json.load(file), "use_cache": False})
    settings = {
        "train_micro_batch_size_per_gpu": batch,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
    }
    model = transformers.AutoModelForCausalLM.from_config(config).train()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=settings
    )
    generator = torch.Generator().manual_seed(1)
    seconds, start_up = [], process_age()
    for _ in range(steps):
        tokens = torch.randint(0, config.vocab_size, (batch, length), generator=generator)
        started = time.perf_counter()
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
        seconds.append(time.perf_counter() - started)
    print(
        json.dumps(
            {
                "step_seconds": seconds,
                "start_up": start_up,
                "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "versions": f"deepspeed {deepspeed.__version__}",
            }
        )
    )


if __name__ == "__main__":
    main()
