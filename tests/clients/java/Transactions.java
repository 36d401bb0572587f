import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Of five messages the first is committed, the second rolled back; the third and fourth end the same ways when the
 * broker asks; the producer fails at the fifth, and commits it when the broker asks.
 */
final class Transactions implements TransactionListener {
    /** A broker asks after six seconds, and every thirty. */
    private static final int CHECK_SECONDS = 100;

    private final Set<String> asked = ConcurrentHashMap.newKeySet();

    static String committedRolledBackAndAsked(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        Transactions listener = new Transactions();
        TransactionMQProducer producer = place.prepared(new TransactionMQProducer(place.topic + "-senders"));
        producer.setTransactionListener(listener);
        place.started(producer);
        for (Message message : place.messages(Place.MESSAGES)) {
            Place.acknowledged(producer.sendMessageInTransaction(message, null));
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(CHECK_SECONDS);
        List<String> toAsk = keys(place, 2, 3, 4);
        while (!listener.asked.containsAll(toAsk) && System.nanoTime() < deadline) {
            Thread.sleep(100);
        }
        Failed.unless(listener.asked.size() == toAsk.size() && listener.asked.containsAll(toAsk),
            "the broker asked about " + listener.asked);
        inbox.expectOnce(keys(place, 0, 2, 4), Place.SECONDS);
        return "4 committed at once and 8 when asked came once, 8 rolled back did not";
    }

    private static List<String> keys(Place place, Integer... rests) {
        return IntStream.range(0, Place.MESSAGES).filter(number -> List.of(rests).contains(number % 5))
            .mapToObj(place::key).toList();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return switch (rest(message)) {
            case 0 -> LocalTransactionState.COMMIT_MESSAGE;
            case 1 -> LocalTransactionState.ROLLBACK_MESSAGE;
            case 4 -> throw new IllegalStateException("a local transaction that fails on purpose");
            default -> LocalTransactionState.UNKNOW;
        };
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        asked.add(message.getKeys());
        // The second kind is asked about when the answer to its half message was lost, and the client sent it again.
        return rest(message) == 1 || rest(message) == 3
            ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
    }

    private static int rest(Message message) {
        return Integer.parseInt(message.getUserProperty("n")) % 5;
    }
}
