import java.util.Collection;
import java.util.Map;

/** An adapter of a library. A check whose method an adapter leaves out is not made. */
interface Library {
    boolean set(String key, byte[] value, int seconds) throws Exception;

    /** The value; null where there is none. */
    byte[] get(String key) throws Exception;

    boolean delete(String key) throws Exception;

    Map<String, byte[]> getMany(Collection<String> keys) throws Exception;

    /** One of add, replace, append, prepend. */
    default boolean store(String how, String key, byte[] value) throws Exception {
        throw new UnsupportedOperationException();
    }

    /** The counter after `delta`; null where there is none. */
    default Long count(String key, long delta) throws Exception {
        throw new UnsupportedOperationException();
    }

    default boolean touch(String key, int seconds) throws Exception {
        throw new UnsupportedOperationException();
    }

    default byte[] getAndTouch(String key, int seconds) throws Exception {
        throw new UnsupportedOperationException();
    }

    /** The unique number of the value. */
    default long gets(String key) throws Exception {
        throw new UnsupportedOperationException();
    }

    default boolean cas(String key, byte[] value, long unique) throws Exception {
        throw new UnsupportedOperationException();
    }

    default void setNoReply(String key, byte[] value) throws Exception {
        throw new UnsupportedOperationException();
    }

    default String version() throws Exception {
        throw new UnsupportedOperationException();
    }

    default void flush() throws Exception {
        throw new UnsupportedOperationException();
    }

    /** Whether a list of all keys of all servers has this one. */
    default boolean lists(String key) throws Exception {
        throw new UnsupportedOperationException();
    }

    /** What a counter that is not there has after it was counted. */
    default Long newCounter() {
        return null;
    }

    void close() throws Exception;

    /** Makes an adapter for these servers. */
    interface Make {
        Library with(String[] servers) throws Exception;
    }
}
