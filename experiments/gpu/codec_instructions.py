#!/usr/bin/env python3
"""Counts what codecs of one pass take of a GPU's instructions: codec_instructions.hip says how to make what is read.

    python3 experiments/gpu/codec_instructions.py sm_90=sm_90.txt gfx942=gfx942.txt > codec_instructions.csv

A row per architecture, codec, dtype and work: the instructions that a thread takes for the eight elements that it has of one more tile. `encode`: input
loaded, encoded, wire stored. `decode_add`: wire loaded, decoded, added to a sum. Of NVIDIA's GPUs from what ncu has counted while the kernels ran; of
others in a disassembly, along the shortest way from a kernel's begin to its end that calls nothing: what is rare (an infinity, a NaN) is left out, in
the kernel and in functions that it calls, so it is the least that can be. `vector` are those of AMD's vector units (others are taken beside them),
`packed` those of two 16-bit values; both in a disassembly.
"""

import csv
import heapq
import math
import re
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("codec_instructions.hip").read_text()
# Kernels have a codec's number among these.
CODECS = re.search(r"reads the names here:\n((?:///   .*\n)+)", SOURCE)[1].replace("///", "").split()
KERNEL = re.compile(r"(encode_tiles|add_wires)ILi(\d+)E.*?\d(Fp16|Bf16)ELi([13])EE")
# In a disassembly, the shortest way through these is that of a block of zeros.
RUN_ONLY = ("mx", "fp8-", "logfmt", "int2-g32-sr-is")
PACKED = re.compile(r"v_pk_|H(ADD|MUL|FMA|MNMX)2|VI?\w+\.[US]16x2")
COLUMNS = ("architecture", "codec", "dtype", "work", "instructions", "vector", "packed")


class Kernel:
    """Instructions of a kernel, and where branches go."""

    def __init__(self):
        self.instructions = []
        self.places = {}  # labels (nvdisasm) or offsets (llvm-objdump), with their place among the instructions

    def next_ones(self, at):
        text, target = self.instructions[at]
        if re.match(r"EXIT|s_endpgm", text):
            return None
        if text.startswith("CALL"):
            return []
        ones = [] if re.match(r"BRA|s_branch", text) else [at + 1]
        return ones + ([self.places[target]] if target is not None else [])

    def shortest(self):
        """The instructions on the shortest way."""
        before, queue = {0: None}, [(0, 0)]
        while queue:
            steps, at = heapq.heappop(queue)
            following = self.next_ones(at)
            if following is None:
                way = []
                while at is not None:
                    way.append(self.instructions[at][0])
                    at = before[at]
                return way
            for one in following:
                if one not in before:  # each step is as long as any other
                    before[one] = at
                    heapq.heappush(queue, (steps + 1, one))
        raise ValueError("a kernel without an end")


def kernels_of(lines):
    """By name, from what nvdisasm -c or llvm-objdump -d prints."""
    kernels, current, begin = {}, None, 0
    for line in lines:
        if match := re.match(r"\.text\.(\w+):|([0-9a-f]+) <(\w+)>:", line):
            current = kernels.setdefault(match[1] or match[3], Kernel())
            begin = int(match[2] or "0", 16)
        elif current is None:
            continue
        elif match := re.match(r"(\.L_x_\d+):", line):
            current.places[match[1]] = len(current.instructions)
        elif match := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", line):
            target = re.search(r"BRA.*`\((\.L_x_\d+)\)", match[1])
            current.instructions.append((match[1], target and target[1]))
        elif match := re.match(r"\s+(\w.*?)\s*// ([0-9A-F]{12}):.*?(?:<\w+(?:\+0x([0-9a-f]+))?>)?$", line):
            current.places[int(match[2], 16) - begin] = len(current.instructions)
            is_branch = re.match(r"s_c?branch", match[1])
            current.instructions.append((match[1], int(match[3] or "0", 16) if is_branch else None))
    return kernels


def counted_while_running(lines):
    """From ncu's table, of a thread; vector and packed ones are not told apart."""
    found = {}
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        match = re.search(r"(encode_tiles|add_wires)<(?:\(int\))?(\d+), .*?(Fp16|Bf16), (?:\(int\))?(\d)>", row["Kernel Name"])
        warps = math.prod(int(part) for part in re.findall(r"\d+", row["Block Size"])) // 32 if match else 0
        if match and row["smsp__inst_executed.sum"]:  # the row below the titles has units
            dtype = match[3].lower()
            codec = CODECS[int(match[2])].replace("plain", dtype)
            found[codec, dtype, match[1], int(match[4])] = (float(row["smsp__inst_executed.sum"].replace(",", "")) / warps,)
    return found


def counts_of(architecture, lines):
    """Rows of COLUMNS."""
    found = counted_while_running(lines)
    for name, kernel in kernels_of(lines).items():
        if match := KERNEL.search(name):
            way = kernel.shortest()
            is_vector = [text for text in way if text.startswith("v_")]
            packed = [text for text in way if PACKED.match(text)]
            dtype = match[3].lower()
            codec = CODECS[int(match[2])].replace("plain", dtype)
            if not codec.startswith(RUN_ONLY):
                found[codec, dtype, match[1], int(match[4])] = (len(way), len(is_vector), len(packed))
    rows = []
    for codec, dtype, work, tiles in found:
        if tiles == 3:
            more = [(of_three - of_one) / 2 for of_three, of_one in zip(found[codec, dtype, work, 3], found[codec, dtype, work, 1])]
            counts = [*(f"{count:g}" for count in more), "", ""][:3]
            if not architecture.startswith("gfx"):
                counts[1] = ""
            rows.append((architecture, codec, dtype, {"encode_tiles": "encode", "add_wires": "decode_add"}[work], *counts))
    return sorted(rows)


def main(arguments):
    named = [argument.partition("=") for argument in arguments]
    if not named or not all(architecture and path for architecture, _, path in named):
        sys.exit("error: name ARCHITECTURE=DISASSEMBLY, as in sm_90=sm_90.txt")
    rows = []
    for architecture, _, path in named:
        try:
            with open(path) as lines:
                found = counts_of(architecture, lines.readlines())
        except OSError as error:
            sys.exit(f"error: {path} cannot be read: {error.strerror}")
        if not found:
            sys.exit(f"error: {path} has no kernels of codec_instructions.hip")
        rows += found
    csv.writer(sys.stdout, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main(sys.argv[1:])
