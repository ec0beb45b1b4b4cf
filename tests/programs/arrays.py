"""Large numpy arrays: sorted, transposed, multiplied, gathered and written to at random, with known
results."""
import sys

import numpy as np

count = int(sys.argv[1])
numbers = np.arange(count, dtype=np.int64)
shuffled = np.random.default_rng(1).permutation(count)
assert shuffled.sum() == count * (count - 1) // 2
assert (numbers[shuffled] == shuffled).all()

back = np.empty_like(shuffled)
back[shuffled] = numbers
assert (back[shuffled] == numbers).all()
assert (np.sort(shuffled) == numbers).all()
del back

side = int(count**0.5) // 2
square = shuffled[: side * side].reshape(side, side)
assert (square.T.copy().T == square).all()
identity = np.eye(side // 2)
left = square[: side // 2, : side // 2].astype(np.float64)
assert np.array_equal(left @ identity, left)

grown = np.concatenate([shuffled, numbers, shuffled])
grown.resize(4 * count, refcheck=False)
assert (grown[count : 2 * count] == numbers).all() and not grown[3 * count :].any()
floats = np.sqrt(numbers.astype(np.float64))
assert np.allclose(floats * floats, numbers)
print("whole", side, int(shuffled[:1000].sum()), round(float(floats.sum()), 3))
