import com.spotify.folsom.AsciiMemcacheClient;
import com.spotify.folsom.BinaryMemcacheClient;
import com.spotify.folsom.MemcacheClient;
import com.spotify.folsom.MemcacheClientBuilder;
import com.spotify.folsom.MemcacheStatus;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.KeyIterator;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.impl.KetamaMemcachedSessionLocator;
import net.rubyeye.xmemcached.utils.Protocol;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.DefaultHashAlgorithm;
import net.spy.memcached.FailureMode;
import net.spy.memcached.MemcachedClient;

/** Adapters: each library is used as its documentation shows, with all servers of a group. */
final class Libraries {
    record Entry(String version, Library.Make make) {}

    static final Map<String, Entry> ALL = Map.of(
            "spymemcached", new Entry("2.12.3", servers -> new Spy(servers, false)),
            "spymemcached-binary", new Entry("2.12.3", servers -> new Spy(servers, true)),
            "xmemcached", new Entry("2.4.8", servers -> new Xmemcached(servers, false)),
            "xmemcached-binary", new Entry("2.4.8", servers -> new Xmemcached(servers, true)),
            "folsom", new Entry("1.21.0", servers -> new Folsom(servers, false)),
            "folsom-binary", new Entry("1.21.0", servers -> new Folsom(servers, true)));

    private Libraries() {}

    /** spymemcached redistributes the keys of a server that does not answer. */
    private static final class Spy implements Library {
        private final MemcachedClient client;

        Spy(String[] servers, boolean binary) throws Exception {
            ConnectionFactoryBuilder builder = new ConnectionFactoryBuilder();
            builder.setProtocol(
                    binary ? ConnectionFactoryBuilder.Protocol.BINARY : ConnectionFactoryBuilder.Protocol.TEXT);
            // With the default hash all keys of a kind go to one server.
            builder.setHashAlg(DefaultHashAlgorithm.KETAMA_HASH);
            builder.setLocatorType(ConnectionFactoryBuilder.Locator.CONSISTENT);
            builder.setFailureMode(FailureMode.Redistribute).setOpTimeout(3000).setMaxReconnectDelay(6);
            client = new MemcachedClient(builder.build(), net.spy.memcached.AddrUtil.getAddresses(List.of(servers)));
        }

        private static boolean done(Future<Boolean> future) throws Exception {
            return future.get(4, TimeUnit.SECONDS);
        }

        private static byte[] bytes(CASValue<Object> found) {
            return found == null ? null : (byte[]) found.getValue();
        }

        @Override
        public boolean set(String key, byte[] value, int seconds) throws Exception {
            return done(client.set(key, seconds, value));
        }

        @Override
        public byte[] get(String key) {
            return (byte[]) client.get(key);
        }

        @Override
        public boolean delete(String key) throws Exception {
            return done(client.delete(key));
        }

        @Override
        public Map<String, byte[]> getMany(Collection<String> keys) {
            Map<String, byte[]> found = new HashMap<>();
            client.getBulk(keys).forEach((key, value) -> found.put(key, (byte[]) value));
            return found;
        }

        @Override
        public boolean store(String how, String key, byte[] value) throws Exception {
            return done(switch (how) {
                case "add" -> client.add(key, 0, value);
                case "replace" -> client.replace(key, 0, value);
                case "append" -> client.append(key, value);
                default -> client.prepend(key, value);
            });
        }

        @Override
        public Long count(String key, long delta) {
            // Text stored by set has no flag of a number, and the server counts it all the same.
            long value = delta < 0 ? client.decr(key, -delta) : client.incr(key, delta);
            return value == -1 ? null : (Long) value;
        }

        @Override
        public boolean touch(String key, int seconds) throws Exception {
            return done(client.touch(key, seconds));
        }

        @Override
        public byte[] getAndTouch(String key, int seconds) {
            return bytes(client.getAndTouch(key, seconds));
        }

        @Override
        public long gets(String key) {
            return client.gets(key).getCas();
        }

        @Override
        public boolean cas(String key, byte[] value, long unique) {
            return client.cas(key, unique, value) == CASResponse.OK;
        }

        @Override
        public String version() {
            return client.getVersions().values().iterator().next();
        }

        @Override
        public void flush() throws Exception {
            done(client.flush());
        }

        @Override
        public void close() {
            client.shutdown();
        }
    }

    /** xmemcached leaves a disconnected server out of its ring, and heals the connection. */
    private static final class Xmemcached implements Library {
        private final net.rubyeye.xmemcached.MemcachedClient client;

        Xmemcached(String[] servers, boolean binary) throws Exception {
            XMemcachedClientBuilder builder = new XMemcachedClientBuilder(
                    net.rubyeye.xmemcached.utils.AddrUtil.getAddresses(String.join(" ", servers)));
            builder.setSessionLocator(new KetamaMemcachedSessionLocator());
            builder.setHealSessionInterval(1000);
            builder.setOpTimeout(3000);
            if (binary) {
                builder.setCommandFactory(new BinaryCommandFactory());
            }
            client = builder.build();
        }

        @Override
        public boolean set(String key, byte[] value, int seconds) throws Exception {
            return client.set(key, seconds, value);
        }

        @Override
        public byte[] get(String key) throws Exception {
            return client.get(key);
        }

        @Override
        public boolean delete(String key) throws Exception {
            return client.delete(key);
        }

        @Override
        public Map<String, byte[]> getMany(Collection<String> keys) throws Exception {
            return client.get(keys);
        }

        @Override
        public boolean store(String how, String key, byte[] value) throws Exception {
            return switch (how) {
                case "add" -> client.add(key, 0, value);
                case "replace" -> client.replace(key, 0, value);
                case "append" -> client.append(key, value);
                default -> client.prepend(key, value);
            };
        }

        @Override
        public Long count(String key, long delta) throws Exception {
            return delta < 0 ? client.decr(key, -delta) : client.incr(key, delta);
        }

        /** It asks for a counter with an initial value, so it makes one that is not there. */
        @Override
        public Long newCounter() {
            return 0L;
        }

        @Override
        public boolean touch(String key, int seconds) throws Exception {
            return client.touch(key, seconds);
        }

        @Override
        public long gets(String key) throws Exception {
            GetsResponse<byte[]> found = client.gets(key);
            return found.getCas();
        }

        @Override
        public boolean cas(String key, byte[] value, long unique) throws Exception {
            return client.cas(key, 0, value, unique);
        }

        @Override
        public boolean lists(String key) throws Exception {
            if (client.getProtocol() == Protocol.Binary) {
                throw new UnsupportedOperationException();
            }
            for (InetSocketAddress server : client.getAvailableServers()) {
                KeyIterator keys = client.getKeyIterator(server);
                while (keys.hasNext()) {
                    if (keys.next().equals(key)) {
                        return true;
                    }
                }
            }
            return false;
        }

        @Override
        public void setNoReply(String key, byte[] value) throws Exception {
            client.setWithNoReply(key, 0, value);
        }

        @Override
        public String version() throws Exception {
            return client.getStats().values().iterator().next().get("version");
        }

        @Override
        public void flush() throws Exception {
            client.flushAll();
        }

        @Override
        public void close() throws Exception {
            client.shutdown();
        }
    }

    /** folsom hashes keys over its servers, and fails those of a server that is away. */
    private static final class Folsom implements Library {
        private final MemcacheClient<byte[]> client;

        Folsom(String[] servers, boolean binary) throws Exception {
            MemcacheClientBuilder<byte[]> builder = MemcacheClientBuilder.newByteArrayClient();
            builder.withKeyCharset(StandardCharsets.UTF_8).withRequestTimeoutMillis(3000);
            for (String server : servers) {
                String[] parts = server.split(":");
                builder.withAddress(parts[0], Integer.parseInt(parts[1]));
            }
            client = binary ? builder.connectBinary() : builder.connectAscii();
            client.awaitFullyConnected(10, TimeUnit.SECONDS);
        }

        private static <T> T done(CompletionStage<T> stage) throws Exception {
            return stage.toCompletableFuture().get(4, TimeUnit.SECONDS);
        }

        private static boolean isOk(CompletionStage<MemcacheStatus> stage) throws Exception {
            MemcacheStatus status = done(stage);
            return switch (status) {
                case OK -> true;
                case KEY_NOT_FOUND, KEY_EXISTS, ITEM_NOT_STORED -> false;
                default -> throw new Exception(status.toString());
            };
        }

        @Override
        public boolean set(String key, byte[] value, int seconds) throws Exception {
            return isOk(client.set(key, value, seconds));
        }

        @Override
        public byte[] get(String key) throws Exception {
            return done(client.get(key));
        }

        @Override
        public boolean delete(String key) throws Exception {
            return isOk(client.delete(key));
        }

        @Override
        public Map<String, byte[]> getMany(Collection<String> keys) throws Exception {
            Map<String, byte[]> found = new HashMap<>(done(client.getAsMap(new ArrayList<>(keys))));
            found.values().removeIf(value -> value == null);
            return found;
        }

        @Override
        public boolean store(String how, String key, byte[] value) throws Exception {
            return isOk(switch (how) {
                case "add" -> client.add(key, value, 0);
                case "replace" -> client.replace(key, value, 0);
                case "append" -> client.append(key, value);
                default -> client.prepend(key, value);
            });
        }

        @Override
        public Long count(String key, long delta) throws Exception {
            if (client instanceof BinaryMemcacheClient<byte[]> binary) {
                return done(delta < 0 ? binary.decr(key, -delta, 0, 0) : binary.incr(key, delta, 0, 0));
            }
            AsciiMemcacheClient<byte[]> ascii = (AsciiMemcacheClient<byte[]>) client;
            return done(delta < 0 ? ascii.decr(key, -delta) : ascii.incr(key, delta));
        }

        @Override
        public Long newCounter() {
            return client instanceof BinaryMemcacheClient<byte[]> ? 0L : null;
        }

        @Override
        public boolean touch(String key, int seconds) throws Exception {
            return isOk(client.touch(key, seconds));
        }

        @Override
        public byte[] getAndTouch(String key, int seconds) throws Exception {
            if (client instanceof BinaryMemcacheClient<byte[]> binary) {
                return done(binary.getAndTouch(key, seconds));
            }
            throw new UnsupportedOperationException();
        }

        @Override
        public long gets(String key) throws Exception {
            return done(client.casGet(key)).getCas();
        }

        @Override
        public boolean cas(String key, byte[] value, long unique) throws Exception {
            return isOk(client.set(key, value, 0, unique));
        }

        @Override
        public void flush() throws Exception {
            done(client.flushAll(0));
        }

        @Override
        public void close() {
            client.shutdown();
        }
    }
}
