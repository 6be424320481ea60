"""Points of a grid (a study, a sweep) on several processes and machines, by Dask: `arlab study --dask`, and `client=` in Python.

This process reads and checks what is asked, sends tasks, and alone writes the results; a worker computes the values of a few points from
the text of a task and the files that it names. Codecs and algorithms of one's own go along with the tasks.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import pickle
import queue
import runpy
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any, Callable, Iterator

from arlab import _arlab, _codecs, _fingerprint, _tables, schedules  # noqa: F401  (_tables says where the package's files are)
from arlab._errors import ArgumentError, Error
from arlab._files import read_whole, temporary_folder
from arlab._tables import first_line

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["answer", "compute", "connected", "main"]

#: Tasks per thread of the cluster, so that all threads end at about the same time.
TASKS_PER_THREAD = 8

#: Points of a task, which are lost when its worker dies.
MOST_POINTS = 16

#: Without a worker for so long, none of this machine will come by itself.
MOST_SECONDS_ALONE = 5.0

_own_lock = threading.Lock()
_own_defined = ""

#: The file of --setup that this process has run, and a hash of it; empty where there is none.
_setup = "", ""


# ---------------------------------------------------------------- on a worker


def _work(task: str, own: bytes) -> tuple[list[tuple[str, str]], str]:
    """Returns the outcomes of a task's points, or why this process may not compute them."""
    from distributed import get_worker

    try:
        from arlab import distributed

        return distributed.values(task, own), ""
    except (ImportError, ValueError) as error:
        return [], f"worker {get_worker().address} is refused: {error}"


# Sent as it stands: a worker without this package would otherwise end where it reads its name.
_work.__module__ = "__main__"


def values(task: str, own: bytes) -> list[tuple[str, str]]:
    """By point the rest of its row, or why there is none. Raises ArgumentError where this process is not the right one."""
    if not own:
        _arlab.set_setup("", "")
        return _arlab.values_of(task)
    # One process has one codec of a name; others that share it have to wait.
    with _own_lock:
        _define(own)
        return _arlab.values_of(task)


def _define(own: bytes) -> None:
    global _own_defined
    import cloudpickle

    name = hashlib.sha256(own).hexdigest()
    setup, rest = pickle.loads(own)
    _arlab.set_setup(*setup)  # this thread's
    if _own_defined == name:
        return
    codecs, algorithms, _, headers, told = cloudpickle.loads(rest)  # codebooks are known once they are here
    for header in dict.fromkeys(headers.values()):
        _codecs.define_from_header(header)
    _fingerprint.SENT.update(told)
    try:
        for define, known in ((_codecs.codec, codecs), (schedules.algorithm, algorithms)):
            for key, (made, options) in known.items():
                define(key, **options)(made)
    finally:
        _fingerprint.SENT.clear()
    _own_defined = name


# ---------------------------------------------------------------- where the results are


def _own() -> bytes:
    """The codecs and algorithms of one's own, with the modules that they use, and what tells them from others."""
    if not any((_codecs.OWN, _codecs.CODEBOOKS, _codecs.HEADERS, schedules.OWN, _setup[0])):
        return b""
    import cloudpickle

    # A worker may have modules of these names from before they were changed.
    defining = {made.__module__ for known in (_codecs.OWN, schedules.OWN) for made, _ in known.values()} - {"__main__"}
    used = {module.__name__: module for module in _fingerprint.users_modules(_codecs.OWN, schedules.OWN)}
    by_value = [*(used | {name: sys.modules[name] for name in defining if name in sys.modules}).values()]
    told = {(kind, name): text() for (kind, name), text in _fingerprint.TOLD.items()}
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        own = _codecs.OWN, schedules.OWN, _codecs.CODEBOOKS, _codecs.HEADERS, told
        return pickle.dumps((_setup, bytes(cloudpickle.dumps(own))))
    except Exception as error:
        raise ArgumentError(f"codecs and algorithms of your own cannot be sent to workers: {first_line(error)}") from error
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)


def _package() -> Any:
    try:
        import distributed
    except ImportError:
        raise ArgumentError("workers need the Python package distributed: pip install distributed cryptography") from None
    return distributed


@contextmanager
def connected(client: Client | None, workers: int | None, address: str | None = None) -> Iterator[Client]:
    """The client; else one of the cluster at an address, or of so many processes of this machine, which end with it."""
    if client is not None:
        if workers is not None:
            raise ArgumentError("client and workers: allowed is one of them")
        if not hasattr(client, "asynchronous"):
            raise ArgumentError(f"client is {ascii(client)}: needed is a distributed.Client(...)")
        if client.asynchronous:
            raise ArgumentError("client is asynchronous: needed is a distributed.Client(...) without asynchronous=True")
        yield client
        return
    distributed = _package()
    if address is not None:
        try:
            distributed.comm.get_address_host_port(address)  # a client of a wrong address cannot be closed
            there = distributed.Client(address, timeout="10s", set_as_default=False)
        except (OSError, ValueError, TypeError, ImportError) as error:
            raise ArgumentError(f"no Dask scheduler answers at {address}: {first_line(error)}") from None
        with there:
            yield there
        return
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise ArgumentError(f"workers is {workers!r}: allowed is an integer from 1 on")
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ArgumentError("workers are asked for by TLS, which needs: pip install cryptography") from None
    import dask

    # Other users of this machine cannot talk to the workers, who do whatever they are told: TLS with secret keys, and
    # no HTTP server, which would serve pages to everybody. Nor can they put files where workers import from: Dask's
    # folders are in one of our own, where by default they are in one whose name everybody knows. A point whose worker
    # dies has a second worker, and then others by itself. Ctrl-C is for this process, which then ends them.
    stops_http = "def dask_setup(server):\n    server.http_server.stop()\n"
    ignores_interrupts = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    quiet = {
        "silence_logs": logging.CRITICAL, "dashboard_address": None, "security": True, "preload": [ignores_interrupts + stops_http],
        "scheduler_kwargs": {"preload": [stops_http], "dashboard_address": "127.0.0.1:0"},
    }  # fmt: skip
    with temporary_folder() as folder:
        options = {
            "distributed.scheduler.allowed-failures": 1, "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [], "temporary-directory": folder,
        }  # fmt: skip
        with dask.config.set(options):
            with distributed.LocalCluster(n_workers=workers, threads_per_worker=1, local_directory=folder, **quiet) as cluster:
                with distributed.Client(cluster, set_as_default=False) as there:
                    yield there


def answer(
    question: str,
    given: dict[str, Any],
    called: str,
    say: Callable[[str], Any] | None,
    cluster: tuple[Client | None, int | None, str | None],
    shown: tuple[str, bool] = ("json", False),
) -> tuple[str, tuple[list[str], str] | None, dict[str, Any]]:
    """The answer as text, what draws its figures, and the figures; its points are computed by connected(*cluster)."""
    grid = _arlab.Grid(question, given, say, called)
    try:
        with connected(*cluster) as client:
            grid.open()
            compute(grid, client, say or (lambda _: None))
        return grid.finish(*shown)
    finally:
        grid.close()


def compute(grid: _arlab.Grid, client: Client, say: Callable[[str], Any]) -> None:
    """Has the missing points of an open grid computed. Points that fail are lost, and leave the others alone."""
    threads = sum(client.nthreads().values())
    workers = len(client.nthreads()) or 1
    missing = grid.missing()
    share = max(1, min(-(-len(missing) // (TASKS_PER_THREAD * max(threads, 4))), MOST_POINTS))
    pieces = [missing[i : i + share] for i in range(0, len(missing), share)]
    deaths: list[int] = []
    _send(grid, client, say, threads, pieces, deaths)
    # Which of the points that were with a worker when it died has killed it? One after the other, on a cluster that has its
    # workers again, and twice: a worker that is starting may go for other reasons.
    for point in deaths:
        tries: list[int] = []
        while len(tries) < 2:
            before = len(tries)
            try:
                client.wait_for_workers(workers, timeout=10)
            except TimeoutError:  # some do not come back; those that have are enough
                workers = len(client.nthreads()) or 1
            _send(grid, client, say, threads, [[point]], tries)
            if len(tries) == before:
                break
        else:
            grid.lose(point, "every worker that computed it died (too little memory?)")


def _send(
    grid: _arlab.Grid,
    client: Client,
    say: Callable[[str], Any],
    threads: int,
    pieces: list[list[int]],
    deaths: list[int],
) -> None:
    """Computes pieces in any order. Points whose workers died time and again go to `deaths`."""
    from distributed import KilledWorker

    own = _own()
    done: queue.SimpleQueue[Future] = queue.SimpleQueue()
    waiting: dict[Future, list[int]] = {}
    alone_since: float | None = None

    def submit(points: list[int]) -> None:
        future = client.submit(_work, grid.task(points), own, pure=False)
        waiting[future] = points
        future.add_done_callback(done.put)

    try:
        for points in pieces:
            submit(points)
        while waiting:
            try:
                future = done.get(timeout=1)
            except queue.Empty:
                if client.status not in ("running", "connecting"):
                    raise _lost(grid, client) from None
                alone_since = _alone(client, say, threads, alone_since)
                continue
            alone_since = None
            points = waiting.pop(future)
            if future.status in ("lost", "pending"):  # its worker died with the rows, which are computed again
                submit(points)
                continue
            try:
                outcomes, refusal = future.result(timeout=10)
            except TimeoutError:  # the same, noticed later
                submit(points)
                continue
            except KilledWorker:
                if len(points) == 1:
                    deaths += points
                for point in points if len(points) > 1 else ():
                    submit([point])
                continue
            except CancelledError:
                raise _lost(grid, client) from None
            except Exception as error:
                what = f"a worker cannot compute points: {type(error).__name__}: {first_line(error)}"
                raise Error(f"{what}{_kept(grid)}") from error
            if refusal:
                raise ArgumentError(f"{refusal}{_kept(grid)}")
            grid.append(points, outcomes)
    finally:
        if waiting and client.status == "running":
            client.cancel(list(waiting), force=True)


def _alone(client: Client, say: Callable[[str], Any], threads: int, since: float | None) -> float | None:
    """Since when the cluster has had no worker, or None; says so once, and starts others on this machine."""
    try:
        if client.status != "running" or client.nthreads():
            return None
    except OSError:
        return since
    if since is None:
        say(f"no worker is there: waiting for workers of {client.scheduler.address}\n")
        return time.monotonic()
    if type(client.cluster).__name__ != "LocalCluster" or time.monotonic() - since < MOST_SECONDS_ALONE:
        return since
    # A nanny starts no other worker after one that died while it was starting; there are to be as many more of them.
    client.cluster.scale(len(client.cluster.worker_spec) + threads)
    return time.monotonic()


def _lost(grid: _arlab.Grid, client: Client) -> Error:
    return Error(f"the Dask cluster at {client.scheduler.address} is gone, or has given up the points{_kept(grid)}")


def _kept(grid: _arlab.Grid) -> str:
    return f"; {grid.rows} of {grid.points} points are there"


# ---------------------------------------------------------------- the command line


def main(job: str) -> int:
    """Does what the program asks for, in its place; returns the exit code."""
    asked = json.loads(job)
    try:
        if "words" in asked:  # any command, behind what a file defines
            _set_up(asked["setup"])
            _arlab.set_setup(*_setup)
            return _arlab.program(asked["words"])
        text, figures = _answer(asked)
        # Pictures first: a reader of only the first lines gets them, too.
        code = 0 if figures is None else _draw(*figures)
        print(text, end="", flush=True)
        return code
    except (Error, MemoryError) as error:
        print("arlab:", first_line(error) or "not enough memory", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 2


def _answer(asked: dict[str, Any]) -> tuple[str, tuple[list[str], str] | None]:
    if asked["setup"]:
        _set_up(asked["setup"])
    _arlab.set_setup(*_setup)
    for file in asked["codec_headers"]:
        _codecs.codec_from_header(file)
    # Dask reports a lost scheduler at length, this program in one line.
    logging.disable(logging.CRITICAL)
    cluster = None, asked["workers"], asked["dask"] or None
    return answer(asked["question"], asked["fields"], asked["called"], _say, cluster, (asked["format"], asked["all"]))[:2]


def _draw(figures: list[str], kept: str) -> int:
    """Draws what `python -m arlab.figures` would; says what is there without figures (`kept`) where they fail."""
    said = io.StringIO()
    try:
        from arlab.figures.__main__ import main as draw

        with redirect_stderr(said):
            code = draw(figures)
    except Exception as error:
        what = f"{kept}, but the plots failed: {type(error).__name__}: {first_line(error)}; ./quickstart.sh installs what they need"
        print("arlab:", what, file=sys.stderr)
        return 1
    if code:
        print(f"arlab: {said.getvalue().strip().removeprefix('error: ')}; {kept}", file=sys.stderr)
    return code


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _set_up(file: str) -> None:
    """Runs a file, for the codecs and algorithms that it defines."""
    global _setup
    try:
        if not os.path.isdir(file):  # which may be a program, too
            read_whole(file)  # where it is a pipe, Python would wait for its other end
        runpy.run_path(file, run_name="__main__")
        _setup = file, _fingerprint.hash_of_setup(file)
    except OSError as error:
        raise ArgumentError(f"--setup {file}: {error.strerror}") from None
    except ArgumentError:
        raise
    except (Exception, SystemExit) as error:
        raise ArgumentError(f"--setup {file}: {type(error).__name__}: {first_line(error)}") from error
