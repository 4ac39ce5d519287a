import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Runs Java's client libraries of table.toml; lab/clients/python/harness.py tells the command line and the output. The
 * loop
 * makes pairs of a set and the get of a key that was set half a round before.
 */
public final class Run {
    private static final int KEYS_IN_LOOP = 40;
    private static final long PAUSE_MS = 2; // between two pairs of the loop: a bounded load
    private static final long LAST_READ_NS = 15_000_000_000L; // in which every key must be readable after the loop
    static final String PREFIX = "java-" + Long.toHexString(System.nanoTime()) + "-";

    private final Library library;
    private final Map<String, String> stored = new HashMap<>();
    /** Values whose set failed: it may have been executed, or be so later. */
    private final Map<String, Set<String>> attempted = new HashMap<>();
    private int pairs;
    private int wrong;
    private int failed;
    private long gap;
    private long lastGood = System.nanoTime();

    private Run(Library library) {
        this.library = library;
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        Logger.getLogger("").setLevel(Level.OFF);
        Libraries.Entry entry = Libraries.ALL.get(arguments[0]);
        String[] servers = arguments[arguments.length - 1].split(",");
        System.out.println("version\t" + entry.version());
        if (arguments[1].equals("checks")) {
            Checks.run(entry.make(), servers);
        } else {
            new Run(entry.make().with(servers)).loop(Double.parseDouble(arguments[2]));
        }
        System.exit(0); // the libraries' threads go on otherwise
    }

    private void loop(double seconds) throws Exception {
        long end = System.nanoTime() + (long) (1e9 * seconds);
        for (; System.nanoTime() < end; pairs++) {
            String earlier = PREFIX + "loop" + (pairs + KEYS_IN_LOOP / 2) % KEYS_IN_LOOP;
            boolean good = pair(PREFIX + "loop" + pairs % KEYS_IN_LOOP, PREFIX + pairs, earlier);
            Thread.sleep(good ? PAUSE_MS : 10 * PAUSE_MS);
        }
        gap = Math.max(gap, System.nanoTime() - lastGood);
        readAll();
        System.out.printf("loop\t%d\t%d\t%d\t%d%n", pairs, wrong, failed, gap / 1_000_000);
    }

    private boolean pair(String name, String value, String earlier) {
        try {
            if (!library.set(name, value.getBytes(), 0)) {
                throw new Exception("not stored");
            }
            stored.put(name, value);
        } catch (Exception error) {
            fail("set", error);
            attempted.computeIfAbsent(name, one -> new HashSet<>()).add(value);
        }
        byte[] got;
        String read = stored.containsKey(earlier) ? earlier : name;
        try {
            got = library.get(read);
        } catch (Exception error) {
            return fail("get", error);
        }
        if (got == null && !stored.containsKey(read)) {
            return fail("get", "nothing");
        }
        if (!isAllowed(read, got)) {
            return false;
        }
        gap = Math.max(gap, System.nanoTime() - lastGood);
        lastGood = System.nanoTime();
        return true;
    }

    private boolean isAllowed(String name, byte[] got) {
        String value = got == null ? null : new String(got);
        Set<String> perhaps = attempted.getOrDefault(name, Set.of());
        if (value != null && (value.equals(stored.get(name)) || perhaps.contains(value))) {
            return true;
        }
        wrong++;
        System.out.println("# wrong: " + name + " is " + value + ", stored " + stored.get(name));
        return false;
    }

    private boolean fail(String call, Object why) {
        if (++failed <= 5) {
            System.out.println("# " + call + ": " + Checks.line(Objects.toString(why)));
        }
        return false;
    }

    private void readAll() throws Exception {
        long end = System.nanoTime() + LAST_READ_NS;
        for (String name : stored.keySet()) {
            byte[] got = null;
            while (got == null) {
                try {
                    got = library.get(name);
                } catch (Exception error) {
                    got = null;
                }
                if (got == null && System.nanoTime() > end) {
                    break;
                }
                if (got == null) {
                    Thread.sleep(100);
                }
            }
            isAllowed(name, got);
        }
    }
}
