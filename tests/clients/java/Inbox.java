import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.message.MessageExt;

/** Every message that a consumer was given, in order. */
final class Inbox {
    /** What comes too much would come in this time. */
    private static final long AFTERWARDS_MILLIS = 500;

    private final List<Delivery> deliveries = new ArrayList<>();

    /** A message, and the wall clock's milliseconds when it came. */
    record Delivery(MessageExt message, long atMillis) {
        String key() {
            return message.getKeys();
        }
    }

    synchronized void add(MessageExt message) {
        deliveries.add(new Delivery(message, System.currentTimeMillis()));
        notifyAll();
    }

    synchronized List<Delivery> all() {
        return List.copyOf(deliveries);
    }

    /** How often the message of a key has come. */
    synchronized long count(String key) {
        return deliveries.stream().filter(delivery -> key.equals(delivery.key())).count();
    }

    /** Wait until a condition holds for what has come; whether it does in time. */
    synchronized boolean await(Predicate<List<Delivery>> condition, int seconds) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!condition.test(deliveries)) {
            long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            if (left <= 0) {
                return false;
            }
            wait(left);
        }
        return true;
    }

    /** Wait until each key has come; then none may have come twice, nor any other. */
    List<Delivery> expectOnce(Collection<String> keys, int seconds) throws InterruptedException {
        return expect(keys, 1, seconds);
    }

    /** The same with several times for each. */
    List<Delivery> expect(Collection<String> keys, int times, int seconds) throws InterruptedException {
        await(all -> all.size() >= keys.size() * times, seconds);
        Thread.sleep(AFTERWARDS_MILLIS);
        List<Delivery> all = all();
        Map<String, Integer> counts = new LinkedHashMap<>();
        keys.forEach(key -> counts.put(key, 0));
        all.forEach(delivery -> counts.merge(delivery.key(), 1, Integer::sum));
        List<String> wrong = counts.entrySet().stream()
            .filter(one -> one.getValue() != (keys.contains(one.getKey()) ? times : 0))
            .map(one -> one.getKey() + " came " + one.getValue() + " times")
            .collect(Collectors.toList());
        Failed.unless(wrong.isEmpty(), wrong.size() + " keys did not come " + times + " times, the first: "
            + (wrong.isEmpty() ? "" : wrong.get(0)));
        return all;
    }
}
