#!/usr/bin/env python3
"""vLLM with arlab's library in the place of NCCL: does it go, which calls have a codec, what does it cost and gain?

    python3 experiments/gpu/try_vllm.py --model meta-llama/Llama-3.1-8B-Instruct --out vllm_h200-2.csv

Needed are vLLM, its GPUs, and a build of arlab (build/lib/libarlab_nccl.so). vLLM runs as experiments/site/pages/engines.md says, with
and without the library in turns, and goes on from some prompts greedily. A row per run: tokens per second, who made the all-reduces of
rank 0, and the share of tokens that are those of the first run without. Exit code 1 when no all-reduce had a codec.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measurement  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
COLUMNS = "way run tokens seconds tokens_per_s by_rules by_library plain same_tokens".split()
COUNTS = re.compile(r"arlab: rank 0 of \d+: all_reduce (\d+) by rules, (\d+) by the library, (\d+) plain")
PROMPTS = [
    "The capital of France is", "Water boils at", "def fibonacci(n):", "In 1969, people", "The three laws of motion are", "A haiku on autumn:",
    "To make bread, first", "The derivative of x squared is",
]  # fmt: skip


def environment(library, rules):
    """The page's variables, for vLLM with the library; without, all but the library's."""
    common = {"VLLM_ALLREDUCE_USE_FLASHINFER": "0", "VLLM_ALLREDUCE_USE_SYMM_MEM": "0"}
    return common | (
        {"VLLM_NCCL_SO_PATH": str(library), "ARLAB_ALL_REDUCE": rules, "ARLAB_NCCL_DEBUG": "1"} if library else {}
    )


def generate(options):
    """In a process of its own: vLLM, twice; the second time counts."""
    import vllm

    model = vllm.LLM(options.model, tensor_parallel_size=options.ranks or 2, disable_custom_all_reduce=True)
    sampling = vllm.SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True)
    prompts = PROMPTS * options.batch
    model.generate(prompts, sampling)
    before = time.perf_counter()
    made = [list(each.outputs[0].token_ids) for each in model.generate(prompts, sampling)]
    seconds = time.perf_counter() - before
    print(json.dumps({"seconds": seconds, "tokens": made, "vllm": vllm.__version__}), flush=True)


def run(options, library):
    command = [sys.executable, __file__, "--child", *sys.argv[1:]]
    # Variables of an earlier try would decide in the place of these.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ARLAB_") and name != "VLLM_NCCL_SO_PATH"
    }
    done = subprocess.run(command, env=kept | environment(library, options.rules), capture_output=True, text=True)
    said = done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"seconds"')]
    if done.returncode != 0 or len(found) != 1:
        sys.exit(
            f"try_vllm.py: vLLM ended with code {done.returncode}; its last lines:\n"
            + "\n".join(said.splitlines()[-20:])
        )
    counts = [tuple(map(int, each)) for each in COUNTS.findall(said)]
    return found[0], tuple(map(sum, zip(*counts))) if counts else (0, 0, 0)


def same_share(made, wanted):
    pairs = [pair for ours, theirs in zip(made, wanted) for pair in zip(ours, theirs)]
    return sum(a == b for a, b in pairs) / max(len(pairs), 1)


def parse_arguments(arguments=None):
    parser = measurement.Parser(__doc__, counts=("tokens", "batch", "turns"))
    parser.add_argument("--model", required=True, help="as vllm serve takes it")
    parser.add_argument(
        "--library", type=Path, default=REPOSITORY / "build/lib/libarlab_nccl.so", help="[build/lib/libarlab_nccl.so]"
    )
    parser.add_argument(
        "--rules", default="64K-1M:one_shot/qr-q8,1M-:two_shot/qr-q4", help="ARLAB_ALL_REDUCE [%(default)s]"
    )
    parser.add_argument("--tokens", type=int, default=128, help="that follow each prompt [%(default)s]")
    parser.add_argument("--batch", type=int, default=32, help=f"times {len(PROMPTS)} prompts at once [%(default)s]")
    parser.add_argument("--turns", type=int, default=3, help="runs each way [%(default)s]")
    parser.add_argument("--child", action="store_true", help="one run of vLLM in this process, as the script starts it")
    options = parser.parse(arguments)
    if not options.library.is_file():
        parser.error(f"--library {options.library}: there is no such file")
    if importlib.util.find_spec("vllm") is None:
        parser.error("vLLM is not installed for this Python")
    options.library = options.library.resolve()
    return options


def main():
    options = parse_arguments()
    if options.child:
        return generate(options)
    rows, first, version = [], None, "?"
    for turn in range(options.turns):
        for way in ("nccl", "arlab"):
            found, (rules, library, plain) = run(options, options.library if way == "arlab" else None)
            first, version = first or found["tokens"], found["vllm"]
            tokens = sum(map(len, found["tokens"]))
            rows.append(dict(zip(COLUMNS, (way, turn, tokens, round(found["seconds"], 4), round(tokens / found["seconds"], 1), rules,
                                           library, plain, round(same_share(found["tokens"], first), 4)))))  # fmt: skip
            print(*rows[-1].values(), flush=True)
    said = [
        f"command: {measurement.command_line()}",
        f"date: {measurement.today()}",
        f"vLLM {version}, model {options.model}",
    ]
    measurement.write_whole(options.out, measurement.csv_text(rows, said, COLUMNS))
    if not any(row["by_rules"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
