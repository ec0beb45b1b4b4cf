#!/usr/bin/env bash
# A JVM with a heap that is larger than its local memory. Garbage collectors walk all of the heap again and
# again, so give one as much as it uses at a time: here the heap has some 100 MiB of objects, and 64 MiB are
# local.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/Words.java" <<'JAVA'
import java.util.HashMap;
import java.util.Map;

public final class Words {
    public static void main(String[] arguments) {
        Map<Integer, String> words = new HashMap<>();
        for (int number = 0; number < 600_000; number++) words.put(number, "the word for number " + number);
        long letters = 0;
        for (String word : words.values()) letters += word.length();
        System.out.println(words.size() + " words of " + letters + " letters");
    }
}
JAVA
spillway run --local 64M --stats "$work/stats.json" \
    java -Xmx160m -XX:+UseSerialGC -XX:-UsePerfData "$work/Words.java"
java "$work/Words.java"
number() { grep --only-matching "\"$1\":[0-9]*" "$work/stats.json" | cut -d: -f2; }
(($(number peak_local_bytes) <= 64 << 20)) && echo "never more than 64 MiB local"
(($(number pages_fetched) > 0)) && echo "pages went far and came back"
