"""Files of others are read in one place, by C++ and by Python: a reader of its own once had none of its bounds.

A line of these sources that opens or parses is found here, unless it stands below with its reason.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("reference", "sim", "kernels", "experiments")

#: Calls that open files, or parse their contents.
CPP = {
    "a parser of TOML": r"\btoml::parse(_file)?\b(?!_error)",
    "a parser of JSON": r"\b\w*[jJ](son|SON)::(parse|accept|sax_parse|from_\w+)\s*\(|\bInput::parse\s*\(",
    "a parser of XML or YAML": r"\.load_(file|buffer|string)\w*\s*\(|\bYAML::Load\w*\s*\(",
    "a stream of a file": r"\b(basic_)?(i|o)?fstream\b|\bfilebuf\b",
    "a file of C": r"\b(fopen|freopen|fdopen|popen|tmpfile)\s*\(",
    "a file of the system": r"\b(openat|creat|opendir|memfd_create|mkstemp|shm_open)\s*\(|(?<!\w)::open\s*\(|(?<![\w.>])open\s*\([^)]*(c_str\(|O_)",
    "files of a folder": r"\b(recursive_)?directory_iterator\s*[({]",
}
PYTHON = {
    "a file": r"(?<![\w.])(?<!def )open\(|\b(os|io)\.open|\.open\(\"|\.read_(text|bytes)\(|fromfile\(|\bmemmap\(|np\.load\(|\bZipFile\(",
    "a parser of JSON": r"\bjson\.load",
    "a table": r"(pd|pandas\(\))\.read_\w+\(|\bread_csv\(",
    "code": r"\brun_path\(|\bexec\(|\beval\(|\bpickle\b",
}

#: (file, what): how many lines, and why.
ALLOWED = {
    # ---- readers and parsers that all others call
    ("reference/toml.cc", "a parser of TOML"): (1, "parse_toml"),
    ("reference/json.h", "a parser of JSON"): (1, "parse_json"),
    ("reference/tensors/file.cc", "a file of the system"): (4, "InputFile, write_file, paths_in, remove_left_behind"),
    ("reference/tensors/file.cc", "a file of C"): (1, "InputFile"),
    ("experiments/python/arlab/_files.py", "a file"): (5, "read_whole; folders and files that are locked"),
    ("experiments/python/arlab/_files.py", "a parser of JSON"): (1, "parsed_json"),
    # ---- rules of their own, of text that has been read
    ("reference/tensors/safetensors.cc", "a parser of JSON"): (1, "headers, which nest three deep; a name twice is refused"),
    ("reference/collectives/schedule_json.cc", "a parser of JSON"): (2, "nesting has a bound, a key twice is refused; its own writer's text"),
    ("reference/collectives/msccl_xml.cc", "a parser of XML or YAML"): (1, "pugixml"),
    ("sim/topology/import.cc", "a parser of XML or YAML"): (1, "yaml-cpp, which bounds nesting"),
    ("sim/topology/import_nccl_xml.cc", "a parser of XML or YAML"): (1, "pugixml"),
    ("experiments/python/arlab/conformance.py", "a file"): (1, "an array in bytes"),
    ("experiments/python/arlab/figures/model_times.py", "a table"): (1, "in text"),
    ("experiments/python/arlab/simulation.py", "a table"): (1, "in bytes"),
    ("experiments/python/arlab/fetch.py", "a file"): (1, "a wheel whose hash was right"),
    # ---- what arlab has written itself, in this call
    ("experiments/python/arlab/conformance.py", "a parser of JSON"): (2, "reports of the compiled part"),
    ("experiments/python/arlab/schedules.py", "a parser of JSON"): (1, "a schedule of the compiled part"),
    ("experiments/python/arlab/simulation.py", "a parser of JSON"): (1, "a timeline of the compiled part"),
    ("experiments/python/arlab/distributed.py", "a parser of JSON"): (1, "what the program asks for"),
    # ---- what the system says
    ("reference/memory.cc", "a stream of a file"): (2, "numbers of /proc and /sys"),
    # ---- no contents are read
    ("experiments/lab/codecs/new.cc", "a file of the system"): (1, "a folder that is locked"),
    ("experiments/lab/codecs/codec_header.cc", "a file of the system"): (
        2, "a folder that is locked; memory without a name, for a library that was checked",
    ),
    ("experiments/lab/grids/results_file.cc", "a file of the system"): (
        2, "a folder that is locked, and a file that rows are added to",
    ),
    ("experiments/lab/bits/vectors.cc", "a file of the system"): (1, "a folder that is locked"),
    ("experiments/cli/main.cc", "a file of the system"): (1, "/dev/null in the place of a closed stream"),
    ("experiments/cli/plots.cc", "a file of the system"): (1, "memory without a name"),
    ("kernels/compile/kernel_folder.cc", "a file of the system"): (2, "a folder that is held open, and files in it, which are read through InputFile"),
    ("kernels/platform/host/shared_memory.cc", "a file of the system"): (1, "memory without a name"),
    ("kernels/runtime/socket_bootstrap.cc", "a file of the system"): (1, "the folder of the socket, whose owner is looked at"),
    ("kernels/nccl/recorder.cc", "a file of the system"): (3, "its own files, which are for this user only"),
    # ---- programs
    ("experiments/lab/gpus/judge.cc", "a file of the system"): (
        1, "pipes to the program that is judged, with a timeout",
    ),
    ("experiments/lab/gpus/doctor.cc", "a file of C"): (1, "what compilers and drivers say of themselves"),
    ("experiments/python/arlab/distributed.py", "code"): (4, "the file of --setup; codecs that travel to workers, who are trusted"),
}  # fmt: skip
#: Files that are part of the package, or lie in /proc.
OF_THE_PACKAGE = re.compile(r"TEMPLATE / |/proc/|__file__")


def without_comments(text, suffix):
    if suffix == ".py":
        return re.sub(r'"""(?:[^"]|"(?!""))*"""|#[^\n]*', lambda match: "\n" * match[0].count("\n"), text)
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)


def found_in(text, suffix):
    """Returns the calls that open or parse: the kind, the line, and its number."""
    kinds = PYTHON if suffix == ".py" else CPP
    for number, line in enumerate(without_comments(text, suffix).splitlines(), 1):
        if line.lstrip().startswith("#include"):
            continue
        for kind, pattern in kinds.items():
            if re.search(pattern, line) and not OF_THE_PACKAGE.search(line):
                yield kind, number, line.strip()


def sources():
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            is_package = name.startswith("experiments/python/arlab/") and path.suffix == ".py"
            if is_package or path.suffix in (".cc", ".h", ".hip"):
                yield name, path


def test_nothing_else_opens_or_parses_files():
    counts, lines = {}, {}
    for name, path in sources():
        for kind, number, line in found_in(path.read_text("utf-8"), path.suffix):
            counts[name, kind] = counts.get((name, kind), 0) + 1
            lines.setdefault((name, kind), []).append(f"{name}:{number}: {kind}: {line}")
    assert counts, "nothing was looked at"
    wrong = [line for key in counts if counts[key] != ALLOWED.get(key, (0,))[0] for line in lines[key]]
    wrong += [f"{name}: {kind} is allowed, but not there" for name, kind in ALLOWED if (name, kind) not in counts]
    assert not wrong, "read by InputFile or read_whole, parse by parse_toml, parse_json or parsed_json:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "suffix, line",
    [
        (".cc", "  file = toml::parse(text);"), (".cc", "auto t = toml::parse_file(path);"), (".cc", "Json j = Json::parse(text, nullptr, false);"),
        (".cc", "nlohmann::json::parse(in)"), (".cc", "  std::ifstream file(path);"), (".h", "std::basic_ifstream<char> in;"), (".cc", "std::fopen(a, b);"),
        (".cc", "int fd = ::open(path, O_RDONLY);"), (".cc", "  open(path.c_str(), 0)"), (".cc", "for (auto& e : fs::directory_iterator(folder))"),
        (".hip", "std::ofstream out(part);"), (".py", "with open(path) as file:"), (".py", "x = path.read_bytes()"), (".py", "json.loads(text)"),
        (".py", "np.load(path)"), (".py", 'frame = pd.read_csv("x")'), (".py", "Path(x).read_text()"), (".py", "np.fromfile(path)"),
    ],
)  # fmt: skip
def test_a_reader_of_its_own_is_found(suffix, line):
    assert list(found_in(f"// one\n{line}\n" if suffix != ".py" else f"# one\n{line}\n", suffix))


@pytest.mark.parametrize("line", ["// std::ifstream file(path);", "between.open(ranks, request)", "catch (const toml::parse_error& wrong) {", "void open() override {"])
def test_what_is_no_reader_is_not_found(line):
    assert not list(found_in(line, ".cc"))
