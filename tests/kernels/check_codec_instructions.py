"""check_codec_instructions.py TOOLS CODE_OBJECT CSV: codecs take no more of gfx942's instructions than the file says, and not much less.

A twentieth may be another compiler's. Where a codec has changed, experiments/gpu/codec_instructions.hip says how to make the file anew. Counting itself
is tried with disassemblies whose counts are known.
"""

import csv
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments" / "gpu"))

import codec_instructions  # noqa: E402

# One tile takes three instructions and a branch, three tiles four more; what is jumped over is rare, and so is the call.
NVIDIA = """.text._ZN12encode_tilesILi4ENS1_4Bf16ELi{tiles}EEEvPKvPh:
        /*0000*/               @P1 BRA `(.L_x_3) ;
        /*0000*/                   LDG.E.128 R4, desc[UR6][R4.64] ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
        /*0020*/                   FMUL R1, R2, R3 ;
        /*0030*/                   FMUL R1, R2, R3 ;
.L_x_1:
{more}        /*0040*/                   EXIT ;
.L_x_3:
        /*0060*/                   CALL.REL.NOINC `(rare) ;
        /*0070*/                   EXIT ;
.L_x_2:
        /*0050*/                   BRA `(.L_x_2);
"""
AMD = """0000000000014300 <_ZN9add_wiresILi9ENS1_4Fp16ELi{tiles}EEEvPKhPv>:
	v_pk_add_f16 v0, v1, v2                                    // 000000014300: BF880024
	s_cbranch_execz 2                                          // 000000014308: BF880002 <_ZN9add_wires+0x14>
	s_nop 0                                                    // 00000001430C: BF800000
	s_nop 0                                                    // 000000014310: BF800000
{more}	s_endpgm                                                   // 000000014330: BF810000
"""


def known_counts():
    """A failure each, where a count is not what it must be."""
    hadd = "        /*0030*/                   HADD2.BF16_V2 R12, R10, 1, 1 ;\n"
    text = "".join(NVIDIA.format(tiles=tiles, more=hadd * more) for tiles, more in ((1, 0), (3, 4)))
    row = codec_instructions.counts_of("sm_90", text.splitlines())
    if row != [("sm_90", "qr-q4", "bf16", "encode", "2", "", "2")]:
        yield f"nvdisasm: {row}"
    steps = [f"\tv_mov_b32 v0, v1                                          // 0000000143{at:02X}: 7E000301\n" for at in (20, 24, 28, 32, 36, 40)]
    text = "".join(AMD.format(tiles=tiles, more="".join(steps[: 2 * tiles])) for tiles in (1, 3))
    row = codec_instructions.counts_of("gfx942", text.splitlines())
    if row != [("gfx942", "int4-g32", "fp16", "decode_add", "2", "2", "0")]:
        yield f"llvm-objdump: {row}"


def differences(tools, code_object, recorded):
    disassembly = subprocess.run([f"{tools}/llvm-objdump", "-d", code_object], check=True, capture_output=True, text=True).stdout
    counted = {row[1:4]: float(row[4]) for row in codec_instructions.counts_of("gfx942", disassembly.splitlines())}
    with open(recorded) as file:
        rows = [row for row in csv.DictReader(line for line in file if not line.startswith("#")) if row["architecture"] == "gfx942"]
    if len(rows) != len(counted):
        yield f"{recorded} has {len(rows)} rows for {len(counted)}"
    for row in rows:
        now, before = counted[row["codec"], row["dtype"], row["work"]], float(row["instructions"])
        if abs(now - before) > max(2, before / 20):
            yield f"{row['codec']}, {row['dtype']}: {row['work']} takes {now:g} instructions, {before:g} in {recorded}"


failures = [*known_counts(), *differences(*sys.argv[1:])]
print("\n".join(failures) or "as recorded")
sys.exit(1 if failures else 0)
