"""inspect_code_objects.py TOOLS [CODE_OBJECT... | --units PROGRAM --compile COMMAND OPTION...] [--csv FILE]: what AMD code objects must
be, by metadata and disassembly.

--units: "PROGRAM FOLDER ...", which writes the translation units of kernels as they are compiled on demand (write_units.cc); --compile:
what compiles each, as "COMMAND;OPTION;...".

Every kernel has no undefined symbols, no scratch memory, no flat accesses, and no spilled vector registers (scalar ones
may be kept in lanes of a vector register). It has at most so many vector registers and so much local memory (LDS) that the
blocks that a call starts fit on a compute unit. Every write-back of the L2 cache is waited for before the next access to
memory: a release store is only then one, and clang 19 to 22 leave the wait out (llvm-project #178316).
QuickReduce codecs on fp16: packed arithmetic and 128-bit accesses. Codecs that measure: 128-bit accesses to
tensors and statistics. Collectives: system-scope flags; those with Lamport slots store words of 128 bits there, at system scope.

--csv: a row per kernel. `waves` are those of a SIMD (one per block) that registers and local memory leave room for;
`packed_share` is the part of the vector instructions on floating-point numbers and 16-bit integers that work on two at
once; `waits` are instructions that wait for memory.
"""

import argparse
import csv
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

VECTOR_REGISTERS = 512  # a lane's, shared by the waves on a SIMD
MOST_WAVES = 8
LOCAL_MEMORY = 64 << 10  # bytes of a compute unit, shared by its blocks: kSharedBytes
BLOCKS_PER_COMPUTE_UNIT = 2
BLOCKS_PER_COMPUTE_UNIT_TUNED = 3  # kFastBlocks
COLUMNS = (
    "code_object", "kernel", "vector_registers", "scalar_registers", "local_bytes", "waves", "instructions", "packed_share", "waits",
    "vector_spills", "scalar_spills", "scratch_bytes",
)  # fmt: skip


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def metadata_of(notes):
    kernels = {}
    for block in re.split(r"\n  - \.a", notes)[1:]:
        fields = dict(re.findall(r"^\s+\.?([a-z_]+):\s+(\S+)", "    .a" + block, re.M))
        kernels[fields["name"]] = {key: int(value) for key, value in fields.items() if value.isdigit()}
    return kernels


def instructions_of(disassembly):
    functions, current = {}, None
    for line in disassembly.splitlines():
        label = re.match(r"^[0-9a-f]+ <([^>]+)>:", line)
        if label:
            current = functions.setdefault(label.group(1), [])
            continue
        instruction = line.split("//")[0].strip()
        if current is not None and instruction and not instruction.startswith("..."):
            current.append(instruction)
    return functions


def write_backs_not_waited_for(instructions):
    """Write-backs after which memory is accessed, or the block left, before all accesses are done."""
    ends = re.compile(r"(global|flat|buffer|ds|scratch)_|s_endpgm|s_cbranch|s_branch|s_barrier")
    for i, instruction in enumerate(instructions):
        if not instruction.startswith("buffer_wbl2"):
            continue
        following = next(x for x in instructions[i + 1 :] if ends.match(x) or "vmcnt(0)" in x)
        if "vmcnt(0)" not in following:
            yield f"{instruction} is followed by {following}"


def waves_of(metadata):
    """Waves that fit on a SIMD; a block of 256 threads has one on each of the four."""
    registers = -(-metadata["vgpr_count"] // 8) * 8
    local = metadata["group_segment_fixed_size"]
    return min(MOST_WAVES, VECTOR_REGISTERS // max(registers, 8), LOCAL_MEMORY // local if local else MOST_WAVES)


def row_of(code_object, name, metadata, instructions):
    def count(pattern):
        return sum(1 for x in instructions if re.match(pattern, x))

    packed = count("v_pk_")
    arithmetic = packed + count(r"v_\w+_(f16|f32|[iu]16)")
    share = f"{packed / arithmetic:.2f}" if arithmetic else ""
    return (
        code_object, name, metadata["vgpr_count"], metadata["sgpr_count"], metadata["group_segment_fixed_size"], waves_of(metadata),
        len(instructions), share, count("s_waitcnt"), metadata["vgpr_spill_count"], metadata["sgpr_spill_count"],
        metadata["private_segment_fixed_size"],
    )  # fmt: skip


def problems_of(name, metadata, instructions):
    def count(pattern):
        return sum(1 for x in instructions if re.match(pattern, x))

    if metadata["private_segment_fixed_size"] or count("scratch_"):
        yield "uses scratch memory"
    if metadata["vgpr_spill_count"]:
        yield "spills vector registers"
    tuned = any(codec in name for codec in ("Plain", "QuickReduce", "FixedAnyBit"))
    blocks = BLOCKS_PER_COMPUTE_UNIT_TUNED if tuned else BLOCKS_PER_COMPUTE_UNIT
    allowed = VECTOR_REGISTERS // blocks // 8 * 8
    if metadata["vgpr_count"] > allowed:
        yield f"takes {metadata['vgpr_count']} vector registers; allowed are {allowed}"
    has_slots = "lamport_kernel" in name
    if has_slots and "Plain" in name:
        blocks = 1  # kLamportBlocks
    if waves_of(metadata) < blocks:
        yield f"leaves room for {waves_of(metadata)} blocks on a compute unit; needed are {blocks}"
    if has_slots and not count(r"global_store_dwordx4 .*\bsc0 sc1"):
        yield "has no 128-bit stores at system scope"
    if count("flat_(load|store|atomic)"):
        yield "has flat accesses"
    yield from write_backs_not_waited_for(instructions)
    if "QuickReduce" in name and "Fp16" in name:
        if "decode" not in name and not (count("v_pk_mul_f16") and count("v_pk_max_[iu]16")):
            yield "has no packed fp16 arithmetic"
        if count("v_(add|mul|fma)_f16"):
            yield "has fp16 arithmetic that is not packed"
    if "Plain" in name or "QuickReduce" in name:
        if "decode_kernel" not in name and not count("global_load_dwordx4"):
            yield "has no 128-bit loads"
        if "encode_kernel" not in name and not count("global_store_dwordx4"):
            yield "has no 128-bit stores"
    if "TwoPass" in name or "NvFp4<" in name or "merge_statistics" in name:
        if "decode_measured" not in name and not count("global_load_dwordx4"):
            yield "has no 128-bit loads"
        if "encode_measured" not in name and not count("global_store_dwordx4"):
            yield "has no 128-bit stores"
    collective = re.search(r"(one_shot|two_shot|ring|all_to_all|program|small|lamport)_kernel", name)
    if collective and not (count("buffer_wbl2") and count("buffer_inv")):
        yield "has no release or no acquire at system scope"


def kernel_name(unit):
    """two_shot_kernel<QuickReduce<Q4, Bf16>, Bf16> of the unit's first line, // two_shot Bf16 QuickReduce<Q4, Element>."""
    form, *rest = unit.read_text().split("\n", 1)[0].removeprefix("// ").split(" ", 2)
    types = [part.replace("Element", rest[0]) for part in reversed(rest)]
    return f"{form.split('/')[0]}_kernel<{', '.join(types)}>"


def compiled_units(program, command, options):
    """Code objects by the names of their kernels."""
    folder = Path(program.split()[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(program.split(), check=True)

    def compile(unit):
        code_object = unit.with_suffix(".co")
        subprocess.run([*command.split(";"), *options, unit, "-o", code_object], check=True)
        return str(code_object), kernel_name(unit)

    with ThreadPoolExecutor() as pool:
        return list(pool.map(compile, sorted(folder.glob("*.hip"))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tools")
    parser.add_argument("objects", nargs="*")
    parser.add_argument("--csv")
    parser.add_argument("--units")
    parser.add_argument("--compile")
    options, of_compiler = parser.parse_known_args()
    tools = options.tools
    objects = [(code_object, None) for code_object in options.objects]
    if options.units:
        objects = compiled_units(options.units, options.compile, of_compiler)
    failures, rows, registers = [], [], []
    for code_object, kernel in objects:
        undefined = output_of(f"{tools}/llvm-nm", "-u", code_object).strip()
        if undefined:
            failures.append(f"{code_object}: undefined symbols: {undefined}")
        kernels = metadata_of(output_of(f"{tools}/llvm-readelf", "--notes", code_object))
        functions = instructions_of(output_of(f"{tools}/llvm-objdump", "-d", code_object))
        if not kernels:
            failures.append(f"{code_object}: no kernels")
        for symbol, metadata in kernels.items():
            name = kernel or symbol
            failures += [f"{code_object}: {name} {p}" for p in problems_of(name, metadata, functions[symbol])]
            rows.append(row_of("/".join(code_object.split("/")[-2:]), name, metadata, functions[symbol]))
            registers.append(metadata["vgpr_count"])
    print(f"{len(rows)} kernels, {min(registers)} to {max(registers)} vector registers")
    print("\n".join(failures))
    if options.csv is not None:
        with open(options.csv, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(rows)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
