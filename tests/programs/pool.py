"""A pool of forked processes that read what their parent has made, make their own and send results back."""
import multiprocessing
import sys

count = int(sys.argv[1])
words = {f"key-{number}": [number, str(number) * 8] for number in range(count)}


def check(part):
    """Reads a quarter of the parent's words, and changes this process's copy of all of them."""
    keys = [f"key-{number}" for number in range(part, count, 4)]
    for key in keys:
        number = int(key[4:])
        assert words[key] == [number, str(number) * 8], key
    own = [bytes([part]) * 1000 for _ in range(count // 16)]
    for value in words.values():
        value[0] += part + 1
    total = sum(value[0] for value in words.values())
    assert all(piece == bytes([part]) * 1000 for piece in own)
    for value in words.values():
        value[0] -= part + 1
    return total - (part + 1) * count


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    want = count * (count - 1) // 2
    for _ in range(2):
        with multiprocessing.Pool(4) as pool:
            assert pool.map(check, range(4), chunksize=1) == [want] * 4
    assert sum(value[0] for value in words.values()) == want
    print("whole", want)
