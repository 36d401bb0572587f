import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.rocketmq.common.message.MessageExt;

/** What one feature did under load, as lines of a file; loss_tally.py says what they mean. */
final class Journal implements AutoCloseable {
    private static final long AFTER_FAILURE_MILLIS = 100;
    private static final long LOOK_MILLIS = 200;

    private final PrintWriter lines;
    private final Set<String> acknowledged = new HashSet<>();
    private final Map<String, Set<String>> takenBy = new HashMap<>();
    private final Set<String> never = new HashSet<>();
    private volatile boolean stopped;

    Journal(Path file) throws IOException {
        lines = new PrintWriter(Files.newBufferedWriter(file));
    }

    @Override
    public synchronized void close() {
        lines.close();
    }

    /** End the load. */
    void stop() {
        stopped = true;
    }

    boolean isStopped() {
        return stopped;
    }

    /** Whoever is named must get everything. */
    synchronized void reader(String name) {
        takenBy.put(name, new HashSet<>());
        write("reader " + name);
    }

    synchronized void acked(String key) {
        acknowledged.add(key);
        write("acked " + key + " " + System.currentTimeMillis());
    }

    synchronized void failed(String key, Throwable error) {
        write("failed " + key + " " + System.currentTimeMillis() + " " + error);
    }

    /** A message must not come before a time, if it comes. */
    synchronized void from(String key, long atMillis) {
        write("from " + key + " " + atMillis);
    }

    /** A message must not come. */
    synchronized void never(String key) {
        never.add(key);
        write("never " + key);
    }

    /** Another fault that the load itself saw. */
    synchronized void wrong(String text) {
        write("wrong " + text);
    }

    /**
     * A listener was called with a message.
     *
     * @param copy tells apart what may be stored more than once for one send: a repeat, or one of two half messages
     */
    synchronized void took(
            MessageExt message, String reader, long atMillis, long beganMicros, boolean succeeded, long copy) {
        took(message.getKeys(), message.getQueueId() + "/" + message.getQueueOffset(), reader, atMillis, beganMicros,
            succeeded, copy);
    }

    synchronized void took(
            String key, String place, String reader, long atMillis, long beganMicros, boolean succeeded, long copy) {
        if (succeeded && takenBy.containsKey(reader)) {
            takenBy.get(reader).add(key);
        } else if (succeeded) {
            takenBy.values().forEach(taken -> taken.add(key));
        }
        write("took " + key + " " + atMillis + " " + place + " " + reader + " " + beganMicros + " " + micros() + " "
            + (succeeded ? "ok" : "again") + " " + copy);
    }

    /** A message is a dead letter. */
    synchronized void buried(MessageExt message) {
        takenBy.values().forEach(taken -> taken.add(message.getKeys()));
        write("buried " + message.getKeys() + " " + message.getQueueId() + "/" + message.getQueueOffset());
    }

    /** Wait for all that is to come; at most so long. What did not come in time, it does not say. */
    void drain(int seconds) throws InterruptedException {
        long deadline = System.currentTimeMillis() + 1000L * seconds;
        while (!isComplete() && System.currentTimeMillis() < deadline) {
            Thread.sleep(LOOK_MILLIS);
        }
    }

    private synchronized boolean isComplete() {
        List<String> expected = new ArrayList<>(acknowledged);
        expected.removeAll(never);
        return takenBy.values().stream().allMatch(taken -> taken.containsAll(expected));
    }

    /** Send until it is acknowledged, as an application would; false if the load ended first. */
    boolean insist(List<String> keys, Callable<?> send) throws InterruptedException {
        while (true) {
            try {
                send.call();
                keys.forEach(this::acked);
                return true;
            } catch (InterruptedException error) {
                throw error;
            } catch (Exception error) {
                failed(keys.get(0), error);
                if (stopped) {
                    return false;
                }
                Thread.sleep(AFTER_FAILURE_MILLIS);
            }
        }
    }

    boolean insist(String key, Callable<?> send) throws InterruptedException {
        return insist(List.of(key), send);
    }

    static long micros() {
        return System.nanoTime() / 1000;
    }

    private void write(String line) {
        lines.println(line.replace("\n", " "));
        lines.flush();
    }
}
