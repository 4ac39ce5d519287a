import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;

/** What every Java library has to do, by named checks. */
final class Checks {
    private interface Check {
        void run(Library library) throws Exception;
    }

    private final Library.Make make;
    private final String[] servers;
    private final Map<String, Check> checks = new LinkedHashMap<>();

    private Checks(Library.Make make, String[] servers) {
        this.make = make;
        this.servers = servers;
        addPlain();
        addConditional();
        addSizes();
        addShared();
    }

    static void run(Library.Make make, String[] servers) throws Exception {
        Library library = make.with(servers);
        for (Map.Entry<String, Check> one : new Checks(make, servers).checks.entrySet()) {
            try {
                one.getValue().run(library);
                System.out.println("ok\t" + one.getKey());
            } catch (UnsupportedOperationException error) {
                System.out.println("# not offered: " + one.getKey());
            } catch (Exception error) {
                System.out.println("no\t" + one.getKey() + "\t" + line(error.toString()));
            }
        }
    }

    static String line(String text) {
        String flat = text.replaceAll("\\s+", " ");
        return flat.substring(0, Math.min(200, flat.length()));
    }

    private static String key(String name) {
        return Run.PREFIX + name;
    }

    private static void same(String what, Object got, Object expected) throws Exception {
        if (!Objects.equals(got, expected)) {
            throw new Exception(line(what + ": got " + got + ", expected " + expected));
        }
    }

    private static void holds(Library l, String name, String expected) throws Exception {
        byte[] got = l.get(key(name));
        same("get", got == null ? null : new String(got, "ISO-8859-1"), expected);
    }

    private static void stores(Library l, String name, String value) throws Exception {
        same("set", l.set(key(name), value.getBytes("ISO-8859-1"), 0), true);
    }

    private static void keeps(Library l, String name, String value) throws Exception {
        stores(l, name, value);
        holds(l, name, value);
    }

    private void addPlain() {
        checks.put("set_get", l -> {
            keeps(l, "a", "value");
            keeps(l, "a", "other");
        });
        checks.put("missing", l -> holds(l, "nobody", null));
        checks.put("empty_value", l -> keeps(l, "empty", ""));
        checks.put("incr", l -> {
            same("incr of nothing", l.count(key("uncounted"), 1), l.newCounter());
            stores(l, "incr", "10");
            same("incr", l.count(key("incr"), 1L << 40), (1L << 40) + 10);
        });
        checks.put("decr", l -> {
            stores(l, "decr", "10");
            same("decr", l.count(key("decr"), -3), 7L);
            same("decr below zero", l.count(key("decr"), -100), 0L);
        });
        checks.put("touch", l -> {
            same("touch nothing", l.touch(key("nobody"), 100), false);
            l.set(key("touch"), "1".getBytes(), 2);
            same("touch", l.touch(key("touch"), 100), true);
        });
        checks.put("gat", l -> {
            l.set(key("gat"), "1".getBytes(), 2);
            same("gat", new String(l.getAndTouch(key("gat"), 100)), "1");
            same("gat of nothing", l.getAndTouch(key("nobody"), 100), null);
        });
        checks.put("delete", l -> {
            stores(l, "delete", "1");
            same("delete", l.delete(key("delete")), true);
            same("delete again", l.delete(key("delete")), false);
            holds(l, "delete", null);
        });
        checks.put("multi_get", Checks::multiGet);
    }

    private static void multiGet(Library l) throws Exception {
        Map<String, String> expected = new HashMap<>();
        for (int n = 0; n < 60; n++) {
            stores(l, "many" + n, "v" + n);
            expected.put(key("many" + n), "v" + n);
        }
        List<String> keys = new ArrayList<>(expected.keySet());
        keys.add(key("nobody"));
        Map<String, String> found = new HashMap<>();
        l.getMany(keys).forEach((name, value) -> found.put(name, new String(value)));
        same("get of many", found, expected);
    }

    private void addConditional() {
        checks.put("add", l -> conditional(l, "add", "x", "x", false));
        checks.put("replace", l -> conditional(l, "replace", "x", "1", true));
        checks.put("append", l -> conditional(l, "append", "ab", "ab1", true));
        checks.put("prepend", l -> conditional(l, "prepend", "ab", "1ab", true));
        checks.put("cas", l -> {
            stores(l, "cas", "1");
            long unique = l.gets(key("cas"));
            same("cas", l.cas(key("cas"), "2".getBytes(), unique), true);
            stores(l, "cas", "3");
            same("cas with an old unique", l.cas(key("cas"), "4".getBytes(), unique), false);
            holds(l, "cas", "3");
        });
    }

    /** A change that depends on the key: once where there is nothing, and once where there is a value. */
    private static void conditional(Library l, String how, String before, String after, boolean wantsValue)
            throws Exception {
        boolean first = l.store(how, key(how + "-first"), "1".getBytes());
        same(how + " of what is not there", first, !wantsValue);
        stores(l, how, before);
        same(how + " of what is there", l.store(how, key(how), "1".getBytes()), wantsValue);
        holds(l, how, after);
    }

    private void addSizes() {
        checks.put("large", l -> {
            byte[] value = new byte[900_000];
            new Random(1).nextBytes(value);
            same("set", l.set(key("large"), value, 0), true);
            same("get", Arrays.equals(l.get(key("large")), value), true);
        });
        checks.put("too_large", l -> {
            byte[] value = new byte[2_000_000];
            new Random(2).nextBytes(value);
            refused(() -> l.set(key("too_large"), value, 0));
            for (int n = 0; n < 3; n++) {
                keeps(l, "after", "1");
            }
        });
        checks.put("binary_value", l -> {
            StringBuilder value = new StringBuilder();
            for (int n = 0; n < 1024; n++) {
                value.append((char) (n & 255));
            }
            keeps(l, "binary", value + "\r\nEND\r\nVALUE x 0 3\r\nabc\r\n");
        });
        checks.put("unicode_value", l -> {
            byte[] value = "naïve — 日本語 🎉".getBytes("UTF-8");
            l.set(key("unicode"), value, 0);
            same("get", new String(l.get(key("unicode")), "UTF-8"), "naïve — 日本語 🎉");
        });
        checks.put("unicode_key", l -> keeps(l, "ключ-日本", "1"));
        checks.put("long_key", l -> keeps(l, "k".repeat(250 - key("").length()), "1"));
        checks.put("key_too_long", l -> {
            refused(() -> l.set("k".repeat(251), "1".getBytes(), 0));
            keeps(l, "after", "1");
        });
    }

    private interface Call {
        boolean made() throws Exception;
    }

    private static void refused(Call call) throws Exception {
        boolean stored;
        try {
            stored = call.made();
        } catch (Exception error) {
            System.out.println("# refused: " + line(error.toString()));
            stored = false;
        }
        same("set", stored, false);
    }

    private void addShared() {
        checks.put("every_server", this::everyServer);
        checks.put("concurrent", Checks::concurrent);
        checks.put("noreply", l -> {
            for (int n = 0; n < 300; n++) {
                l.setNoReply(key("noreply"), String.valueOf(n).getBytes());
            }
            holds(l, "noreply", "299");
        });
        checks.put("expiry", l -> {
            same("set", l.set(key("short"), "1".getBytes(), 2), true);
            holds(l, "short", "1");
            Thread.sleep(3200);
            holds(l, "short", null);
        });
        checks.put("keys", l -> {
            stores(l, "listed", "1");
            for (int turn = 0; !l.lists(key("listed")); turn++) { // stock lists an item some moments later
                same("listed in time", turn < 30, true);
                Thread.sleep(200);
            }
        });
        checks.put("stats", l -> same("version", Character.isDigit(l.version().charAt(0)), true));
        checks.put("flush", l -> {
            stores(l, "flush", "1");
            l.flush();
            holds(l, "flush", null);
        });
    }

    private void everyServer(Library ignored) throws Exception {
        List<Library> clients = new ArrayList<>();
        for (String server : servers) {
            clients.add(make.with(new String[] {server}));
        }
        for (int n = 0; n < clients.size(); n++) {
            stores(clients.get(n), "across", String.valueOf(n));
            for (Library other : clients) {
                holds(other, "across", String.valueOf(n));
            }
        }
        for (Library client : clients) {
            client.close();
        }
    }

    private static void concurrent(Library l) throws Exception {
        AtomicReference<Exception> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 6; number++) {
            String name = "thread" + number;
            Thread thread = new Thread(() -> {
                try {
                    for (int turn = 0; turn < 60; turn++) {
                        keeps(l, name, String.valueOf(turn));
                    }
                } catch (Exception error) {
                    failure.set(error);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }
}
