import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Threads that fill a heap with objects, drop and replace some of them, and check all. Usage: Heap MIB */
public final class Heap {
    private static final int THREADS = 4;
    private static final int BLOCK_LONGS = 1024;

    private static long word(long block, long version, int at) {
        return (block * 31 + version) * 0x9E3779B97F4A7C15L + at;
    }

    private static long[] block(long number, long version) {
        long[] words = new long[BLOCK_LONGS];
        for (int at = 0; at < BLOCK_LONGS; at++) words[at] = word(number, version, at);
        return words;
    }

    private static void check(long[] words, long number, long version) {
        for (int at = 0; at < BLOCK_LONGS; at++)
            if (words[at] != word(number, version, at)) throw new AssertionError("block " + number + " is wrong");
    }

    private static void work(long thread, int blocks) {
        Map<String, long[]> byName = new HashMap<>();
        for (long number = 0; number < blocks; number++) byName.put("block-" + number, block(thread * blocks + number, 1));
        for (long number = 0; number < blocks; number += 3) byName.put("block-" + number, block(thread * blocks + number, 2));
        for (long number = 0; number < blocks; number++)
            check(byName.get("block-" + number), thread * blocks + number, number % 3 == 0 ? 2 : 1);
    }

    public static void main(String[] arguments) throws InterruptedException {
        int blocks = (Integer.parseInt(arguments[0]) << 20) / (BLOCK_LONGS * 8) / THREADS;
        List<Thread> threads = new ArrayList<>();
        int[] finished = new int[THREADS];
        for (int i = 0; i < THREADS; i++) {
            int thread = i;
            threads.add(new Thread(() -> {
                work(thread, blocks);
                finished[thread] = 1;
            }));
        }
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        System.gc();
        for (int one : finished) if (one != 1) System.exit(1);
        System.out.println("whole " + blocks);
    }
}
