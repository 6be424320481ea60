"""How ranks of PyTorch's process groups meet in a store that takes what anybody sends: without PyTorch, with a store like its own."""

import os
import threading
import time
from datetime import timedelta

import pytest

import arlab
from arlab.torch import _meeting
from arlab.torch._meeting import Meeting

STRANGER = "^rank 1: what the store has from it was not written by this user on this host for this meeting$"


class Store:
    """As torch.distributed.TCPStore: a server, and places in it."""

    def __init__(self, port=29500, places=None):
        self.port, self.places = port, {} if places is None else places

    def set(self, place, said):
        self.places[place] = bytes(said)

    def get(self, place):
        return self.places[place]

    def wait(self, places, timeout: timedelta):
        until = time.monotonic() + timeout.total_seconds()
        while not all(place in self.places for place in places):
            if time.monotonic() > until:
                raise RuntimeError("wait timeout")
            time.sleep(0.001)


class Prefix:
    """As torch.distributed.PrefixStore."""

    def __init__(self, prefix, store):
        self.prefix, self.underlying_store = prefix, store

    def set(self, place, said):
        self.underlying_store.set(f"{self.prefix}/{place}", said)

    def get(self, place):
        return self.underlying_store.get(f"{self.prefix}/{place}")

    def wait(self, places, timeout):
        self.underlying_store.wait([f"{self.prefix}/{place}" for place in places], timeout)


@pytest.fixture(autouse=True)
def private(tmp_path, monkeypatch):
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("ARLAB_BOOTSTRAP_DIR", str(folder))
    return folder


def meeting(store, rank, ranks=2, timeout_s=0.3, group="0"):
    return Meeting(store, "arlab/0", rank, ranks, timeout_s, group)


def all_say(meetings, words):
    """Returns the words that each hears, or why it does not."""
    heard = [None] * len(meetings)

    def gather(rank):
        try:
            heard[rank] = meetings[rank].gather(words[rank])
        except arlab.Error as error:
            heard[rank] = str(error)

    threads = [threading.Thread(target=gather, args=(rank,)) for rank in range(len(meetings))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return heard


def test_ranks_hear_each_other_in_every_round():
    store = Store()
    meetings = [meeting(store, rank, 3, 5) for rank in range(3)]
    for turn in range(3):
        words = [f"{turn} of {rank}".encode() for rank in range(3)]
        assert all_say(meetings, words) == [words] * 3


def test_who_does_not_come_is_named_on_all():
    store = Store()
    heard = all_say([meeting(store, rank, 3) for rank in (0, 1)], [b"x", b"y"])
    assert heard == ["rank 2 did not come within 0.3 s"] * 2


def test_why_one_gave_up_is_heard():
    store = Store()
    first, second = meeting(store, 0, timeout_s=5), meeting(store, 1, timeout_s=5)
    assert all_say([first, second], [b"a", b"b"]) == [[b"a", b"b"]] * 2
    second._round -= 1  # where it says its next word
    second.give_up("no memory")
    with pytest.raises(arlab.Error, match="^no memory$"):
        first.gather(b"c")


@pytest.mark.parametrize("places", ["all at once", "as they come"])
def test_words_of_one_group_are_none_in_another(places):
    """A stranger, who has no key, copies what rank 1 of group A has said to the places of rank 1 of group B."""
    store = Store()
    groups = [Prefix(name, store) for name in "AB"]
    said = [b"memory of A, rank 0", b"memory of A, rank 1"]
    in_a = [meeting(groups[0], rank, group="A") for rank in range(2)]
    assert all_say(in_a, said) == [said] * 2
    for place, words in list(store.places.items()):
        if place.endswith("/1") and places == "all at once":
            store.places[place.replace("A/", "B/", 1)] = words
    if places == "as they come":
        store.places["B/arlab/0/0/1"] = store.places["A/arlab/0/0/1"]
    with pytest.raises(arlab.Error, match=STRANGER):
        meeting(groups[1], 0, group="B").gather(b"memory of B, rank 0")


def test_words_of_an_earlier_meeting_are_none_in_the_next():
    """A second meeting of the same group, by the same name: its ranks say other random bytes each time."""
    store = Store()
    said = [b"memory that is gone", b"as well"]
    assert all_say([meeting(store, rank) for rank in range(2)], said) == [said] * 2
    kept = dict(store.places)
    with pytest.raises(arlab.Error, match=STRANGER):
        meeting(Store(places=kept), 0).gather(b"new")
    # Its own words are not believed either.
    repeated = Store(places=dict(kept))
    repeated.set = lambda place, words: None
    with pytest.raises(arlab.Error, match="rank 0 is there twice, or somebody has repeated"):
        meeting(repeated, 0).gather(b"new")


def test_who_gave_up_in_an_earlier_meeting_ends_none():
    store = Store()
    first, second = meeting(store, 0, timeout_s=5), meeting(store, 1, timeout_s=5)
    assert all_say([first, second], [b"a", b"b"]) == [[b"a", b"b"]] * 2
    second._round = 1  # as one that has failed after its random bytes
    second._say(b"!no memory")
    failed = store.places["arlab/0/1/1"]
    again = Store()
    first, second = meeting(again, 0, timeout_s=5), meeting(again, 1, timeout_s=5)
    second._say(b"=" + second._nonce)
    again.places["arlab/0/1/1"] = failed
    with pytest.raises(arlab.Error, match=STRANGER):
        first.gather(b"a")
    again.places["arlab/0/0/1"] = failed  # nor before anybody has said anything
    with pytest.raises(arlab.Error, match=STRANGER):
        meeting(again, 0).gather(b"a")


def test_who_gives_up_in_the_first_round_says_why():
    store = Store()
    first, second = meeting(store, 0, timeout_s=5), meeting(store, 1)
    second._say(b"=" + second._nonce)
    second.give_up("no memory")
    with pytest.raises(arlab.Error, match="^no memory$"):
        first.gather(b"a")


@pytest.mark.parametrize("other", [{"group": "1"}, {"ranks": 3}, {"store": Store(29501)}], ids=str)
def test_another_group_size_or_store_is_another_meeting(other):
    store = Store()
    theirs = {"store": Store(places=store.places), "group": "0", "ranks": 2, **other}
    theirs["store"].places = store.places
    ranks = [meeting(store, 0), meeting(theirs["store"], 1, theirs["ranks"], group=theirs["group"])]
    assert "was not written by this user on this host for this meeting" in all_say(ranks, [b"x", b"y"])[0]


def test_the_prefix_of_a_store_does_not_hide_its_port():
    assert _meeting._port(Prefix("a", Prefix("b", Store(1234)))) == 1234
    assert _meeting._port(object()) == 0


@pytest.mark.parametrize("said", [b"", b"=", b"!", b"x" * 31, b"x" * 32, b"x" * 4096])
@pytest.mark.parametrize("turn", [0, 1])
def test_what_a_stranger_writes_is_not_taken(said, turn):
    store = Store()
    if turn == 1:  # after the random bytes of both
        second = meeting(store, 1)
        second._say(b"=" + second._nonce)
    store.places[f"arlab/0/{turn}/1"] = said
    with pytest.raises(arlab.Error, match=STRANGER):
        meeting(store, 0).gather(b"of 0")


def test_a_changed_word_is_not_taken():
    store = Store()
    first, second = meeting(store, 0, timeout_s=5), meeting(store, 1)
    real = store.set

    def changed(place, said):
        real(place, said[:-1] + b"2" if place == "arlab/0/1/1" else said)

    store.set = changed
    heard = all_say([first, second], [b"of 0", b"of 1"])
    assert "rank 1: what the store has from it was not written by this user" in heard[0]


def test_the_key_is_this_users_alone(private):
    key = _meeting.key()
    assert len(key) == 32 and key == _meeting.key() and key != bytes(32)
    assert [each.name for each in private.iterdir()] == ["key"] and (private / "key").stat().st_mode & 0o777 == 0o600
    private.chmod(0o755)
    with pytest.raises(arlab.Error, match="needed is a folder of this user's with mode 700"):
        _meeting.key()
    private.chmod(0o700)
    for size in (0, 31, 33):
        (private / "key").write_bytes(b"x" * size)
        with pytest.raises(arlab.Error, match="key: (needed are 32 bytes; remove it|it has 33 bytes)"):
            _meeting.key()
    (private / "key").unlink()
    os.mkfifo(private / "key")
    with pytest.raises(arlab.Error, match="key: not a regular file"):
        _meeting.key()
